"use strict";
// The tree on a canvas: what is drawn, and which point is under a pointer.
{
  const { MARKS, markOf, toneOf } = STARK.nodeMark;
  const { clock, isNumber, speedup, words } = STARK.format;
  // Room that labels need, in pixels of the screen; without it they would be a grey noise.
  const LABEL_ROW = 12.5; // between two rows
  const TONES = ["root", "bad", "soft", "ink", "link", "paper", "accent", "speed-3", "speed-2", "speed-1", "speed0", "speed1", "speed2", "speed3", "speed4", "speed5"];

  class TreeDrawing {
    constructor(canvas) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d");
      this.paths = Object.fromEntries(Object.entries(MARKS).map(([name, mark]) => [name, new Path2D(mark.path)]));
      this.readColours();
    }

    // The style sheet owns the colours, also those of the dark theme.
    readColours() {
      const style = getComputedStyle(this.canvas);
      this.colours = Object.fromEntries(TONES.map((tone) => [tone, style.getPropertyValue(`--${tone}`).trim()]));
      this.font = style.fontFamily;
    }

    size() {
      return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
    }

    fitToScreen() {
      const ratio = window.devicePixelRatio || 1;
      const { width, height } = this.size();
      const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (this.canvas.width !== wide || this.canvas.height !== high) {
        this.canvas.width = wide;
        this.canvas.height = high;
      }
      return ratio;
    }

    // scene: {layout, view: {x, y, scale, stepX, stepY}, best, bestPath, top, selected, busy, now}
    // Zoom moves the nodes apart; marks and labels keep nearly their size, so that they stay legible.
    paint(scene) {
      const ratio = this.fitToScreen();
      const { context } = this;
      const { width, height } = this.size();
      const { scale, stepX, stepY } = scene.view;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      scene.markScale = Math.min(1.1, Math.max(0.35, Math.min((stepY * scale) / 13, (stepX * scale) / 20)));
      scene.hasLabels = stepY * scale >= LABEL_ROW;
      scene.columnPx = stepX * scale;
      const seen = { width, height };
      for (const link of scene.layout.links) this.paintLink(link, scene, seen);
      for (const point of scene.layout.points) {
        const at = onScreen(point, scene.view);
        if (at.x < -220 || at.x > width + 20 || at.y < -20 || at.y > height + 20) continue;
        this.paintPoint(point, at, scene, width);
      }
    }

    paintLink({ from, to }, scene, seen) {
      const [start, end] = [onScreen(from, scene.view), onScreen(to, scene.view)];
      if (Math.max(start.y, end.y) < 0 || Math.min(start.y, end.y) > seen.height) return;
      if (end.x < 0 || start.x > seen.width) return;
      const { context } = this;
      const isBest = to.node && scene.bestPath.has(to.node.number);
      context.beginPath();
      context.moveTo(start.x, start.y);
      const middle = (start.x + end.x) / 2;
      context.bezierCurveTo(middle, start.y, middle, end.y, end.x, end.y);
      context.strokeStyle = isBest ? this.colours.accent : this.colours.link;
      context.lineWidth = isBest ? 2.5 : 1.2;
      context.setLineDash(to.kind === "node" ? [] : [3, 3]);
      context.stroke();
      context.setLineDash([]);
    }

    paintPoint(point, at, scene, width) {
      const { context } = this;
      context.save();
      context.translate(at.x, at.y);
      context.scale(scene.markScale, scene.markScale);
      if (point.kind === "node" && point.node.pruned) context.globalAlpha = 0.5;
      const { mark, colour } = this.look(point, scene);
      const { isFilled, isDashed } = MARKS[mark];
      const path = this.paths[mark];
      context.fillStyle = isFilled ? colour : this.colours.paper;
      context.fill(path);
      context.strokeStyle = colour;
      context.lineWidth = isFilled ? 1 : 1.7;
      if (isDashed) context.setLineDash([2.5, 2]);
      context.stroke(path);
      context.setLineDash([]);
      if (point.kind === "node") this.paintRings(point.node, colour, scene);
      if (scene.hasLabels) this.paintLabel(point, scene, width - at.x);
      context.restore();
    }

    look(point, scene) {
      if (point.kind === "attempt") return { mark: "under_way", colour: this.colours.accent };
      if (point.kind === "folded") return { mark: "folded", colour: this.colours.soft };
      const mark = markOf(point.node, scene.best);
      return { mark, colour: this.colours[toneOf(point.node, scene.top)] };
    }

    // A ring for what was confirmed or pinned, a wider one for what is selected.
    paintRings(node, colour, scene) {
      const ring = (radius, stroke, width) => {
        this.context.beginPath();
        this.context.arc(0, 0, radius, 0, 2 * Math.PI);
        this.context.strokeStyle = stroke;
        this.context.lineWidth = width;
        this.context.stroke();
      };
      if (node.confirmed) ring(7.5, colour, 1.2);
      if (node.number === scene.selected) ring(10.5, this.colours.accent, 2.5);
      if (!scene.busy.has(node.number)) return;
      this.context.setLineDash([3, 3]); // it is judged again
      ring(13, this.colours.accent, 1.5);
      this.context.setLineDash([]);
    }

    // `edge`: how far the drawing reaches to the right of the point, in pixels.
    paintLabel(point, scene, edge) {
      const { context } = this;
      const [strong, soft] = labelOf(point, scene.now);
      const left = point.node?.number === scene.selected ? 14 : 11;
      const room = Math.min(point.room * scene.columnPx - 12, edge - 2) / scene.markScale - left;
      context.textBaseline = "middle";
      context.font = `600 11.5px ${this.font}`;
      const wide = context.measureText(strong).width;
      if (wide > room) return;
      this.paintText(strong, left, wide, this.colours.ink);
      context.font = `11px ${this.font}`;
      const softWide = context.measureText(soft).width;
      if (soft && wide + 5 + softWide <= room) this.paintText(soft, left + wide + 5, softWide, this.colours.soft);
    }

    // On paper of its own, so that no link crosses the text.
    paintText(text, left, wide, colour) {
      this.context.fillStyle = this.colours.paper;
      this.context.fillRect(left - 3, -7, wide + 6, 14);
      this.context.fillStyle = colour;
      this.context.fillText(text, left, 0.5);
    }

    // The point nearest to a place on the screen, or undefined where none is near.
    pointAt(layout, view, screenX, screenY) {
      let [found, nearest] = [undefined, 13];
      const label = view.stepX * view.scale > 60 ? 26 : 0; // it belongs to its node
      for (const point of layout.points) {
        const at = onScreen(point, view);
        const [dx, dy] = [Math.max(at.x - screenX, screenX - at.x - label, 0), Math.abs(at.y - screenY)];
        const distance = Math.hypot(dx, dy);
        if (distance < nearest) [found, nearest] = [point, distance];
      }
      return found;
    }
  }

  function onScreen(point, view) {
    return { x: view.x + point.x * view.scale, y: view.y + point.y * view.scale };
  }

  function labelOf(point, now) {
    if (point.kind === "folded") return ["", `+${point.hidden}`];
    if (point.kind === "attempt") {
      const { number, stage, slot, since } = point.attempt;
      const doing = [slot || words(stage), isNumber(since) ? clock(now - since) : ""].filter(Boolean).join(" · ");
      return [String(number), doing];
    }
    const { node } = point;
    if (node.number === 0) return ["0", "reference"];
    const marks = [
      node.verdict === "correct" ? speedup(node.speedup) : "",
      node.pinned ? "pinned" : "", node.pruned ? "pruned" : "", node.by_person ? "by a person" : "",
    ];
    return [String(node.number), marks.filter(Boolean).join(" · ")];
  }

  STARK.TreeDrawing = TreeDrawing;
}
