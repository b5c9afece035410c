const CLASSES = ["small", "large"];

// The policies: with several seeds each has as many runs, and an estimate; a run in real time has none.
const perPolicy = data.estimates && data.estimates.length ? data.runs.length / data.estimates.length : 1;
const policies = [];
for (let i = 0; i < data.runs.length; i += perPolicy) {
  const runs = data.runs.slice(i, i + perPolicy);
  const n = policies.length;
  policies.push({ name: runs[0].policy, runs, estimate: data.estimates && data.estimates[n], profile: data.profiles[n], colour: COLOURS[n % COLOURS.length], faint: n >= COLOURS.length, on: true });
}
const figure = (policy, name, key, pick) => {
  const estimated = policy.estimate && policy.estimate.classes[name][key];
  if (estimated) return estimated;
  const value = pick(policy.runs[0].classes[name]);
  return value === null || value === undefined ? null : { mean: value, half_width: null };
};
const meanOf = (policy, name) => figure(policy, name, "response_ms_mean", (of) => of.response_ms.mean);

function heading() {
  const run = data.runs[0];
  const real = run.mode === "real";
  const title = `${run.workload.split("/").pop()}${run.load === null ? "" : `, load ${trim(run.load)}`}`;
  document.title = `Phalanx: ${title}`;
  by("title").textContent = title;
  const counted = run.classes.small.submitted + run.classes.large.submitted;
  const parts = [real ? `run in real time on ${run.device || "lanes"}` : "simulated in virtual time", `${run.lanes} lanes`, `${counted.toLocaleString("en")} requests a run`];
  parts.push(perPolicy > 1 ? `${perPolicy} seeds from ${run.seed} on` : `seed ${run.seed}`);
  if (run.speed !== 1) parts.push(`${run.speed} times as fast`);
  if (run.simulated && run.simulated.warm_up) parts.push(`${run.simulated.warm_up.toLocaleString("en")} before them not counted`);
  by("about").textContent = `${parts.join(" · ")}. A small request needs one lane, a large one all of them at once.`;
  by("command").textContent = data.command || "";
}

function table() {
  const root = make("table");
  const head = make("tr");
  const columns = ["policy", "small: mean", "p99", "in time", "large: mean", "p99", "in time", "GPU used", "idle for a drain", "in time a second"];
  for (const name of columns) head.appendChild(make("th", {}, name));
  root.appendChild(head);
  const cell = (row, of, show) => {
    const td = make("td", {}, of ? show(of.mean) : "–");
    if (of && of.half_width > 1e-6 * of.mean) td.appendChild(make("small", {}, ` ±${trim((100 * of.half_width) / of.mean, 2)} %`));
    row.appendChild(td);
  };
  for (const policy of policies) {
    const row = make("tr");
    const name = make("td");
    name.appendChild(make("span", { class: "swatch", style: `background:${policy.colour}` }));
    name.appendChild(document.createTextNode(policy.name));
    row.appendChild(name);
    for (const kind of CLASSES) {
      const p99 = figure(policy, kind, "response_ms_p99", (of) => of.response_ms.p99);
      if (policy.estimate && policy.estimate.unstable) row.appendChild(make("td", {}, "unstable"));
      else cell(row, meanOf(policy, kind), time);
      row.appendChild(make("td", {}, p99 ? time(p99.mean) : "–"));
      const met = figure(policy, kind, "slo_met", (of) => of.slo_met);
      row.appendChild(make("td", {}, met ? percent(met.mean) : "–"));
    }
    const of = (key) => (policy.estimate ? policy.estimate[key].mean : policy.runs[0][key]);
    row.appendChild(make("td", {}, percent(of("utilization"))));
    row.appendChild(make("td", {}, percent(of("drain_idle_fraction"))));
    row.appendChild(make("td", {}, of("goodput_per_s").toFixed(2)));
    root.appendChild(row);
  }
  by("table").appendChild(root);
  const unstable = policies.filter((policy) => policy.estimate && policy.estimate.unstable);
  by("unstable").textContent = unstable.length ? `Unstable: ${unstable.map((policy) => policy.name).join(", ")}. A queue grows for ever; a mean over it would only say how long one looked.` : "";
}

function legend() {
  if (policies.length < 2) return by("legend").remove();
  toggles("legend", policies, paint);
}

function distribution(kind) {
  const shown = policies.filter((policy) => policy.on && policy.profile && policy.profile[`${kind}_response`].length > 1);
  if (!shown.length) return empty(kind, "Nothing to draw: no request of the class has completed, or no policy is chosen.");
  const all = shown.flatMap((policy) => policy.profile[`${kind}_response`]);
  // The fastest few are left out: of an exponential service they may be as fast as they like.
  const from = Math.max(Math.min(...all.filter((point) => point[1] <= 0.98).map((point) => point[0])), 1e-4);
  const to = Math.max(...all.map((point) => point[0]), from * 1.01);
  const least = Math.min(...all.map((point) => point[1]), 0.1);
  const view = frame(kind, 300, { log: true, from, to }, { log: true, from: least, to: 1 }, time, (share) => `${trim(100 * share)} %`, "response");
  for (const policy of shown) {
    const points = policy.profile[`${kind}_response`].filter((point) => point[0] >= from).map(([ms, share]) => [view.sx(ms), view.sy(share)]);
    const line = draw(view.svg, "path", { d: path(points), fill: "none", stroke: policy.colour, "stroke-width": 2, "stroke-dasharray": policy.faint ? "5 3" : "none", "stroke-linejoin": "round" });
    draw(line, "title", {}, policy.name);
  }
}

function tradeoff() {
  const point = (policy) => {
    const [small, large] = CLASSES.map((kind) => meanOf(policy, kind));
    return small && large ? { name: policy.name, colour: policy.colour, small, large } : null;
  };
  const points = policies.filter((policy) => policy.on).map(point).filter(Boolean);
  const curve = (data.curve || []).filter((run) => CLASSES.every((kind) => run.classes[kind].response_ms.mean)).map((run) => ({ name: run.policy, small: run.classes.small.response_ms.mean, large: run.classes.large.response_ms.mean }));
  if (points.length + curve.length < 2) return by("trade").remove();
  const range = (values) => ({ log: true, from: Math.min(...values) / 1.25, to: Math.max(...values) * 1.25 });
  const x = range([...points.map((p) => p.small.mean), ...curve.map((p) => p.small)]);
  const y = range([...points.map((p) => p.large.mean), ...curve.map((p) => p.large)]);
  const view = frame("tradeoff", 400, x, y, time, time, "mean response of small requests", "mean response of large requests");
  const placed = [];
  // A name stands where no other one does.
  const label = (px, py, text, kind) => {
    const width = 6.4 * text.length;
    const tries = [[9, 4], [-9 - width, 4], [-width / 2, -9], [-width / 2, 19], [9, -10], [9, 18], [-9 - width, -10], [-9 - width, 18]];
    const spot = tries.map(([dx, dy]) => ({ x: px + dx, y: py + dy, width })).find((spot) => spot.x > view.box.left && spot.x + width < view.box.right + 8 && placed.every((other) => Math.abs(other.y - spot.y) > 13 || spot.x > other.x + other.width || other.x > spot.x + width));
    if (!spot) return;
    placed.push(spot);
    draw(view.svg, "text", { x: spot.x, y: spot.y, class: kind }, text);
  };
  for (const p of points) placed.push({ x: view.sx(p.small.mean) - 6, y: view.sy(p.large.mean) + 4, width: 12 });
  for (const p of points) {
    const [px, py] = [view.sx(p.small.mean), view.sy(p.large.mean)];
    for (const [of, horizontal] of [[p.small, true], [p.large, false]]) {
      if (!of.half_width) continue;
      const axis = horizontal ? x : y;
      const [low, high] = [Math.max(of.mean - of.half_width, axis.from), Math.min(of.mean + of.half_width, axis.to)];
      const ends = horizontal ? { x1: view.sx(low), x2: view.sx(high), y1: py, y2: py } : { x1: px, x2: px, y1: view.sy(low), y2: view.sy(high) };
      draw(view.svg, "line", { ...ends, stroke: p.colour, "stroke-width": 1.5, opacity: 0.6 });
    }
    draw(draw(view.svg, "circle", { cx: px, cy: py, r: 6, fill: p.colour }), "title", {}, `${p.name}: small ${time(p.small.mean)}, large ${time(p.large.mean)}`);
    label(px, py, p.name, "name");
  }
  if (curve.length) {
    draw(view.svg, "path", { d: path(curve.map((p) => [view.sx(p.small), view.sy(p.large)])), fill: "none", stroke: css("--soft"), "stroke-width": 1.5, "stroke-dasharray": "4 4" });
    for (const p of curve) {
      draw(draw(view.svg, "circle", { cx: view.sx(p.small), cy: view.sy(p.large), r: 3.5, fill: css("--card"), stroke: css("--soft"), "stroke-width": 1.5 }), "title", {}, `${p.name}: small ${time(p.small)}, large ${time(p.large)}`);
      label(view.sx(p.small), view.sy(p.large), p.name.replace(/^balance:/, ""), "");
    }
  }
}

let chosen = policies.find((policy) => policy.profile);
function chooser() {
  const drawn = policies.filter((policy) => policy.profile);
  if (!drawn.length) {
    by("over-time").remove();
    by("lanes").remove();
    return;
  }
  const select = by("which");
  for (const policy of drawn) select.appendChild(make("option", { value: policies.indexOf(policy) }, policy.name));
  select.onchange = () => {
    chosen = policies[Number(select.value)];
    paint();
  };
}
// In which unit a run of so many seconds is counted.
const axis = (seconds) => (seconds > 3 * 3600 ? [3600, "hours"] : seconds > 300 ? [60, "minutes"] : [1, "seconds"]);
function usage() {
  const series = chosen.profile.series;
  const [unit, unitName] = axis(series.small.length * series.stretch_s);
  const stretch = series.stretch_s / unit;
  const end = series.small.length * stretch;
  by("stretch").textContent = time(series.stretch_s * 1e3);
  const view = frame("usage", 220, { from: 0, to: end }, { from: 0, to: 1 }, trim, (share) => `${Math.round(100 * share)} %`, unitName);
  let below = series.small.map(() => 0);
  for (const [name, colour] of [["small", css("--small")], ["large", css("--large")], ["drain_idle", css("--drain")]]) {
    const above = below.map((value, i) => value + series[name][i]);
    const step = (values) => values.flatMap((value, i) => [[view.sx(i * stretch), view.sy(Math.min(value, 1))], [view.sx((i + 1) * stretch), view.sy(Math.min(value, 1))]]);
    draw(view.svg, "path", { d: `${path([...step(above), ...step(below).reverse()])}Z`, fill: colour });
    below = above;
  }
  key("usage-key", [[css("--small"), "small requests run"], [css("--large"), "a large request runs"], [css("--drain"), "idle for a waiting large request"], ["transparent", "(the rest is idle)"]]);
  const most = Math.max(1, ...series.small_queued, ...series.large_queued);
  const queues = frame("queues", 170, { from: 0, to: end }, { from: 0, to: most }, trim, (n) => trim(n), unitName);
  for (const [name, colour] of [["small_queued", css("--small")], ["large_queued", css("--large")]]) {
    draw(queues.svg, "path", { d: path(series[name].map((value, i) => [queues.sx((i + 0.5) * stretch), queues.sy(value)])), fill: "none", stroke: colour, "stroke-width": 1.8 });
  }
}

// The lanes, on a canvas: there may be thousands of spans.
const window_ = { from: 0, to: 1 };
function lanes() {
  const line = chosen.profile.timeline;
  const canvas = document.querySelector("#timeline canvas");
  const count = chosen.runs[0].lanes;
  const rowHeight = count > 16 ? 9 : 22;
  const [width, height] = [canvas.parentElement.clientWidth, count * rowHeight + 46];
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.font = "12px system-ui, sans-serif";
  const left = 26;
  const length = line.length_s * 1e3;
  const [from, to] = [window_.from * length, window_.to * length];
  const x = (ms) => left + ((ms - from) / (to - from)) * (width - left);
  const top = 14;
  context.fillStyle = css("--drain");
  for (const [start, end] of line.drains) if (end > from && start < to) context.fillRect(Math.max(x(start), left), 2, Math.max(Math.min(x(end), width) - Math.max(x(start), left), 1), 7);
  for (let lane = 0; lane < count; lane++) {
    context.fillStyle = css("--grid");
    context.fillRect(left, top + lane * rowHeight, width - left, rowHeight - 2);
    context.fillStyle = css("--soft");
    if (rowHeight > 12) context.fillText(lane, 6, top + lane * rowHeight + 15);
  }
  const [small, large, edge] = [css("--small"), css("--large"), css("--card")];
  for (const [lane, kind, , start, end] of line.spans) {
    if (end < from || start > to) continue;
    const [a, b] = [Math.max(x(start), left), Math.min(x(end), width)];
    context.fillStyle = kind ? large : small;
    context.fillRect(a, top + lane * rowHeight, Math.max(b - a, 0.5), rowHeight - 2);
    if (b - a > 4) {
      context.fillStyle = edge;
      context.fillRect(b - 0.75, top + lane * rowHeight, 0.75, rowHeight - 2);
    }
  }
  context.fillStyle = css("--soft");
  context.textAlign = "center";
  for (const tick of even(from, to, width / 110)) {
    if (x(tick) < left + 16 || x(tick) > width - 16) continue;
    context.fillRect(x(tick), top + count * rowHeight, 1, 5);
    context.fillText(`+${time(tick)}`, x(tick), top + count * rowHeight + 20);
  }
  by("from").textContent = time(line.from_s * 1e3);
  by("shown").textContent = `${time(to - from)} shown${line.left_out ? `; ${line.left_out} spans too many to draw` : ""}`;
  key("lanes-key", [[small, "small"], [large, "large, on every lane"], [css("--drain"), "drain (above the lanes): lanes are kept free for a large request"]]);
  canvas.hit = (px, py) => {
    const lane = Math.floor((py - top) / rowHeight);
    const ms = from + ((px - left) / (width - left)) * (to - from);
    return line.spans.find((span) => span[0] === lane && span[3] <= ms && ms <= span[4]);
  };
  canvas.part = (px) => Math.min(Math.max((px - left) / (width - left), 0), 1);
}
function zoom(factor, at = 0.5) {
  const width = window_.to - window_.from;
  const next = Math.min(Math.max(width * factor, 1e-4), 1);
  const centre = window_.from + at * width;
  window_.from = Math.min(Math.max(centre - at * next, 0), 1 - next);
  window_.to = window_.from + next;
  lanes();
}
function move(by_) {
  const width = window_.to - window_.from;
  window_.from = Math.min(Math.max(window_.from + by_ * width, 0), 1 - width);
  window_.to = window_.from + width;
  lanes();
}
function controls() {
  if (!chosen) return;
  const canvas = document.querySelector("#timeline canvas");
  const tip = by("tip");
  by("in").onclick = () => zoom(0.5);
  by("out").onclick = () => zoom(2);
  by("all").onclick = () => zoom(1e9);
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) * 0.003), canvas.part(place(event)[0]));
  }, { passive: false });
  const fingers = new Map();
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
  };
  canvas.onpointerup = canvas.onpointercancel = (event) => fingers.delete(event.pointerId);
  canvas.onpointerleave = () => (tip.style.visibility = "hidden");
  canvas.onpointermove = (event) => {
    const before = fingers.get(event.pointerId);
    if (before !== undefined) {
      if (fingers.size === 2) {
        const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
        const [was, is] = [Math.abs(before - other), Math.abs(event.clientX - other)];
        if (was > 4 && is > 4) zoom(was / is, canvas.part((event.clientX + other) / 2 - canvas.getBoundingClientRect().left));
      } else {
        move((before - event.clientX) / canvas.clientWidth);
      }
      fingers.set(event.pointerId, event.clientX);
      return;
    }
    const [px, py] = place(event);
    const span = canvas.hit(px, py);
    tip.style.visibility = span ? "visible" : "hidden";
    if (!span) return;
    const [lane, kind, id, start, end] = span;
    tip.textContent = `request ${id}, ${CLASSES[kind]}, lane ${lane}: ${time(end - start)} from +${time(Math.max(start, 0))}`;
    tip.style.left = `${Math.min(px + 12, canvas.clientWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${py + 14}px`;
  };
}

function paint() {
  for (const kind of CLASSES) distribution(kind);
  if (by("trade")) tradeoff();
  if (chosen) {
    usage();
    lanes();
  }
}
heading();
table();
legend();
chooser();
controls();
paint();
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(paint, 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
