"use strict";
// The one global name of the page.  Each file adds what it defines, in the order of scripts.json.
// Classic scripts and not modules: report.html opens from disk, where a browser loads no module.
window.STARK = {
  html: window.htm.bind(window.preact.h),
  render: window.preact.render,
  useEffect: window.preactHooks.useEffect,
  useLayoutEffect: window.preactHooks.useLayoutEffect,
  useMemo: window.preactHooks.useMemo,
  useRef: window.preactHooks.useRef,
  useState: window.preactHooks.useState,
};
