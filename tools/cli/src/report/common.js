"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Okabe and Ito's colours first, which colour-blind people can tell apart; after the last one again from the first, as dashes.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a5cc0", "#8a8f00", "#8c510a", "#b2182b", "#35978f", "#777777"];

const make = (tag, attributes = {}, text) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const draw = (parent, tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
};
const trim = (value, digits = 3) => String(Number(value.toPrecision(digits)));
const time = (ms) => {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0";
  const [value, unit] = ms < 1e-3 ? [ms * 1e6, "ns"] : ms < 1 ? [ms * 1e3, "µs"] : ms < 999.5 ? [ms, "ms"] : ms < 6e5 ? [ms / 1e3, "s"] : ms < 3.6e7 ? [ms / 6e4, "min"] : [ms / 3.6e6, "h"];
  return `${trim(value)} ${unit}`;
};
const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`);

// A frame with axes; scales map values to pixels.
const logarithmic = (from, to, start, end) => (value) => start + ((Math.log(value) - Math.log(from)) / (Math.log(to) - Math.log(from))) * (end - start);
const linear = (from, to, start, end) => (value) => start + ((value - from) / (to - from || 1)) * (end - start);
const decades = (from, to) => {
  const ticks = [];
  const width = Math.log10(to / from);
  const steps = width < 0.9 ? [1, 1.5, 2, 3, 4, 5, 6, 8] : width < 2.2 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) for (const step of steps) ticks.push(step * 10 ** power);
  return ticks.filter((tick) => tick >= from * 0.999 && tick <= to * 1.001);
};
const even = (from, to, about) => {
  const rough = (to - from) / about || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to + step * 1e-6; tick += step) ticks.push(tick);
  return ticks;
};
function frame(id, height, x, y, showX, showY, xTitle, yTitle) {
  const root = by(id);
  root.replaceChildren();
  const width = Math.max(root.clientWidth, 240);
  const svg = draw(root, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  const box = { left: 58, right: width - 12, top: 10, bottom: height - 40 };
  const sx = x.log ? logarithmic(x.from, x.to, box.left, box.right) : linear(x.from, x.to, box.left, box.right);
  const sy = y.log ? logarithmic(y.from, y.to, box.bottom, box.top) : linear(y.from, y.to, box.bottom, box.top);
  let last = -1e9;
  for (const tick of x.ticks || (x.log ? decades(x.from, x.to) : even(x.from, x.to, width / 110))) {
    draw(svg, "line", { x1: sx(tick), x2: sx(tick), y1: box.top, y2: box.bottom, stroke: css("--grid") });
    const label = showX(tick);
    if (sx(tick) - last < Math.max(52, 7 * label.length + 4)) continue;
    last = sx(tick);
    draw(svg, "text", { x: sx(tick), y: box.bottom + 16, "text-anchor": "middle" }, label);
  }
  for (const tick of y.ticks || (y.log ? decades(y.from, y.to) : even(y.from, y.to, height / 60))) {
    draw(svg, "line", { x1: box.left, x2: box.right, y1: sy(tick), y2: sy(tick), stroke: css("--grid") });
    draw(svg, "text", { x: box.left - 6, y: sy(tick) + 4, "text-anchor": "end" }, showY(tick));
  }
  draw(svg, "text", { x: box.right, y: height - 6, "text-anchor": "end" }, xTitle);
  if (yTitle) draw(svg, "text", { x: box.left + 4, y: box.top + 10, class: "name" }, yTitle);
  return { svg, sx, sy, box };
}
const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const empty = (id, text) => by(id).replaceChildren(make("p", { class: "note" }, text));
const key = (id, entries) => {
  by(id).replaceChildren();
  for (const [colour, text] of entries) {
    const entry = make("span");
    entry.appendChild(make("span", { class: "swatch", style: `background:${colour}` }));
    entry.appendChild(document.createTextNode(text));
    by(id).appendChild(entry);
  }
};

// A button for each entry of these, with its colour, that switches it on and off.
function toggles(id, entries, changed) {
  for (const entry of entries) {
    const button = make("button", { "aria-pressed": String(entry.on) });
    button.appendChild(make("span", { class: "swatch", style: `background:${entry.colour}` }));
    button.appendChild(document.createTextNode(entry.name));
    button.onclick = () => {
      entry.on = !entry.on;
      button.setAttribute("aria-pressed", entry.on);
      changed();
    };
    by(id).appendChild(button);
  }
}
