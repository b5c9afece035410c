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
