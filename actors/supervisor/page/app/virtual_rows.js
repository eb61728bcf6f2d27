"use strict";
// A long list of which only the rows in sight are in the document.
{
  const { html, useEffect, useLayoutEffect, useRef, useState } = STARK;
  const SPARE = 6; // rows drawn beyond each edge, so that a quick scroll shows no gap

  // children of `rows` are values; `cells(row)` draws one.  `active` is an index or -1.
  function VirtualRows({ rows, rowHeight, cells, keyOf, classOf, active, onActive, onOpen, label, memory }) {
    const box = useRef(null);
    const [top, setTop] = useState(memory?.top ?? 0);
    const [height, setHeight] = useState(600);
    const wasActive = useRef(-1);

    useLayoutEffect(() => {
      const resized = new ResizeObserver(() => setHeight(box.current.clientHeight));
      resized.observe(box.current);
      if (memory?.top) box.current.scrollTop = memory.top;
      return () => resized.disconnect();
    }, []);
    // Follow the active row, but not when only the rows around it have changed.
    useEffect(() => {
      const key = active >= 0 ? keyOf(rows[active]) : null;
      if (key === wasActive.current) return;
      wasActive.current = key;
      if (active < 0) return;
      const [above, below] = [active * rowHeight, (active + 1) * rowHeight];
      const view = box.current;
      if (above < view.scrollTop) view.scrollTop = above;
      else if (below > view.scrollTop + view.clientHeight) view.scrollTop = below - view.clientHeight;
    });

    const onScroll = () => {
      setTop(box.current.scrollTop);
      if (memory) memory.top = box.current.scrollTop;
    };
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const onKeyDown = (event) => {
      if (event.key === "Enter" && active >= 0) onOpen(rows[active]);
      else if (event.key in steps && rows.length) {
        onActive(rows[Math.min(rows.length - 1, Math.max(0, active + steps[event.key]))]);
      } else return;
      event.preventDefault();
    };

    const first = Math.max(0, Math.floor(top / rowHeight) - SPARE);
    const last = Math.min(rows.length, Math.ceil((top + height) / rowHeight) + SPARE);
    const shown = [];
    for (let index = first; index < last; index += 1) shown.push(index);
    return html`<div class="virtual-rows" ref=${box} role="grid" tabindex="0" aria-label=${label}
      aria-rowcount=${rows.length} aria-activedescendant=${active >= 0 ? `row-${active}` : undefined}
      onScroll=${onScroll} onKeyDown=${onKeyDown}>
      <div class="virtual-space" role="presentation" style=${{ height: `${rows.length * rowHeight}px` }}>
        ${shown.map((index) => html`<div role="row" key=${keyOf(rows[index])} id=${`row-${index}`}
          class=${`virtual-row ${index === active ? "is-active" : ""} ${classOf?.(rows[index]) ?? ""}`}
          aria-rowindex=${index + 1} aria-selected=${index === active ? "true" : "false"}
          style=${{ transform: `translateY(${index * rowHeight}px)`, height: `${rowHeight}px` }}
          onClick=${() => onActive(rows[index])} onDblClick=${() => onOpen(rows[index])}>${cells(rows[index])}</div>`)}
      </div>
    </div>`;
  }

  STARK.VirtualRows = VirtualRows;
}
