"use strict";
// Figures as text, the same in every view.  A figure that was not measured is a dash, never 0.
{
  const DASH = "–";
  const UNPRINTED_RATIO = 100; // of an interval's ends, as in run_data/formatting.py

  function isNumber(value) {
    return typeof value === "number" && Number.isFinite(value);
  }

  function speedup(value, low) {
    if (!isNumber(value)) return DASH;
    // A bound near 1 decides whether there is a winner: it must not read 1.00.
    const digits = isNumber(low) && Math.abs(low - 1) < 0.005 ? 3 : value >= 100 ? 0 : 2;
    return `${value.toFixed(digits)}×`;
  }

  function interval(low, high) {
    if (!isNumber(low) || !isNumber(high)) return "";
    if (high >= UNPRINTED_RATIO * low) return `wider than ${UNPRINTED_RATIO}-fold`;
    const digits = Math.abs(low - 1) < 0.005 ? 3 : 2;
    return `${low.toFixed(digits)}–${high.toFixed(digits)}`;
  }

  // `412 µs`, `1.24 ms`, `2.10 s`
  function duration(us) {
    if (!isNumber(us)) return DASH;
    if (us < 10) return `${us.toFixed(2)} µs`;
    if (us < 1000) return `${us.toFixed(0)} µs`;
    return us < 1e6 ? `${(us / 1000).toFixed(2)} ms` : `${(us / 1e6).toFixed(2)} s`;
  }

  // `0:42`, `12:05`, `1:02:03`
  function clock(seconds) {
    if (!isNumber(seconds)) return DASH;
    const whole = Math.max(0, Math.floor(seconds));
    const two = (value) => String(value).padStart(2, "0");
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  }

  function seconds(value) {
    if (!isNumber(value)) return DASH;
    return value < 10 ? `${value.toFixed(1)} s` : value < 120 ? `${value.toFixed(0)} s` : clock(value);
  }

  function usd(value) {
    if (!isNumber(value)) return DASH;
    return `${value.toFixed(value !== 0 && Math.abs(value) < 0.1 ? 4 : 2)} USD`;
  }

  function count(value) {
    return isNumber(value) ? value.toLocaleString("en-US") : DASH;
  }

  function plural(number, word) {
    return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
  }

  // The hour on the reader's own clock; the day, too, where it is another one.
  function hour(at) {
    if (!isNumber(at)) return DASH;
    const date = new Date(at * 1000);
    const time = date.toLocaleTimeString("en-GB");
    return date.toDateString() === new Date().toDateString()
      ? time
      : `${date.toLocaleDateString("en-CA")} ${time}`;
  }

  function words(text) {
    return String(text ?? "").replaceAll("_", " ");
  }

  // The beginning of an idea: its first sentence, for a line that has to be short.
  function firstSentence(text, most = 160) {
    const line = String(text ?? "").trim().replace(/\s+/g, " ");
    const end = line.search(/[.!?](\s|$)/);
    const sentence = end > 15 ? line.slice(0, end) : line.replace(/[.…]+$/, "");
    return sentence.length > most ? `${sentence.slice(0, most - 1).trimEnd()}…` : sentence;
  }

  STARK.format = {
    DASH, clock, count, duration, firstSentence, hour, interval, isNumber, plural, seconds, speedup, usd, words,
  };
}
