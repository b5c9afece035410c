const ns = (value) => time(value / 1e6);
const figures = { ...data.bench };
delete figures.rivals;
for (const [name, figure] of Object.entries(data.bench.rivals)) figures[`rivals.${name}`] = figure;

// What each line is called, in the order of the list; the limit and Phalanx itself stand out.
const system = (name, title, kind) => ({ key: name, name: title, kind, on: true });
const present = (systems) => systems.filter((of) => (data.curves[of.key] || []).length > 1);
const singles = present([
  system("pingpong_rtt", "the machine: a cache line there and back", "limit"),
  system("turn_rtt", "Phalanx, by turn()", "own"),
  system("dispatcher_rtt", "Phalanx, its own dispatcher thread", "own"),
  system("rivals.greedy_cas", "greedy compare-exchange"),
  system("rivals.crossbeam_spin", "crossbeam-channel, spinning"),
  system("rivals.crossbeam_block", "crossbeam-channel, blocking"),
  system("rivals.mutex_condvar", "mutex and condition variable"),
  system("rivals.tokio_semaphore", "tokio semaphore"),
]);
const gangs = present([system("gang_start", "Phalanx: reserved until both run", "own"), system("gang_skew", "Phalanx: between the two starts", "own"), system("rivals.rayon_broadcast", "rayon broadcast, there and back"), system("rivals.tokio_acquire_many", "tokio acquire_many, there and back")]);
const beats = present([system("turn_rtt", "one at a time", "own"), system("open_loop", "on a beat, each from when it was due", "own")]);
for (const [systems, colours] of [[singles, COLOURS], [gangs, [COLOURS[0], COLOURS[4], COLOURS[3], COLOURS[1]]], [beats, [COLOURS[0], COLOURS[1]]]]) {
  let n = 0;
  for (const of of systems) of.colour = of.kind === "limit" ? "#777777" : colours[n++ % colours.length];
}

function heading() {
  const { machine } = data;
  by("about").textContent = [machine.cpu, machine.system, `CPUs ${machine.allowed_cpus.join(", ")}`, `pinned to ${machine.pinned.join(" and ")}`, machine.governor ? `governor ${machine.governor}` : "governor not told"].join(" · ");
  by("command").textContent = data.command;
}

const rows = (id, head, body) => {
  const root = make("table");
  const row = (cells, tag) => {
    const tr = make("tr");
    for (const cell of cells) {
      const node = make(tag);
      if (cell instanceof Node) node.appendChild(cell);
      else node.textContent = cell;
      tr.appendChild(node);
    }
    root.appendChild(tr);
  };
  row(head, "th");
  for (const cells of body) row(cells, "td");
  by(id).appendChild(root);
};

function targets() {
  const verdict = (met) => make("b", { class: met ? "met" : "short" }, met ? "met" : "short");
  rows("targets", ["what", "measured", "at most", ""], data.targets.map((of) => [of.what, of.value === null ? "–" : trim(of.value), trim(of.at_most), verdict(of.met)]));
}

function table() {
  const limit = figures.pingpong_rtt && figures.pingpong_rtt.p50;
  const notes = [...new Set(Object.values(data.notes))];
  const colour = Object.fromEntries(singles.map((of) => [of.key, of.colour]));
  // In the order in which they are drawn, then the others.
  const order = [...new Set([...singles, ...beats, ...gangs].map((of) => of.key).concat(Object.keys(figures)))].filter((name) => figures[name]);
  const name = (of) => {
    const node = make("span", { title: data.about[of] || "" });
    node.appendChild(make("span", { class: "swatch", style: `background:${colour[of] || "transparent"}` }));
    node.appendChild(document.createTextNode(of));
    if (data.notes[of]) node.appendChild(make("small", {}, ` [${notes.indexOf(data.notes[of]) + 1}]`));
    return node;
  };
  rows("table", ["", "p50", "p90", "p99", "p99.9", "p99.99", "max", "× the machine", "samples"], order.map((of) => {
    const figure = figures[of];
    return [name(of), ...["p50", "p90", "p99", "p999", "p9999", "max"].map((key) => ns(figure[key])), limit ? trim(figure.p50 / limit, 3) : "–", figure.n.toLocaleString("en")];
  }));
  for (const of of order) if (data.about[of]) by("notes").appendChild(make("div", {}, `${of}: ${data.about[of]}`));
  notes.forEach((note, n) => by("notes").appendChild(make("div", {}, `[${n + 1}] ${note}`)));
}

// Latency over the share of requests, so that each nine has as much room as the last.
function nines(id, systems, height) {
  const shown = systems.filter((of) => of.on);
  if (!shown.length) return empty(id, "Nothing to draw: no system is chosen.");
  const all = shown.flatMap((of) => data.curves[of.key]).filter((point) => point[1] > 0);
  const least = Math.min(...all.map((point) => point[0]), 0.1);
  const range = [Math.min(...all.map((point) => point[1])), Math.max(...all.map((point) => point[1]))];
  const ticks = [1, 0.5];
  for (let share = 0.1; share >= least * 0.999; share /= 10) ticks.push(share);
  const label = (share) => (share === 1 ? "least" : `${100 - Number((100 * share).toPrecision(1))} %`);
  const view = frame(id, height, { log: true, from: 1, to: least, ticks }, { log: true, from: range[0] / 1.2, to: range[1] * 1.2 }, label, ns, "of the requests", "");
  for (const of of shown) {
    const points = data.curves[of.key].filter((point) => point[1] > 0).map(([above, value]) => [view.sx(above), view.sy(value)]);
    const line = draw(view.svg, "path", { d: path(points), fill: "none", stroke: of.colour, "stroke-width": of.kind === "own" ? 3 : 1.8, "stroke-dasharray": of.kind === "limit" ? "6 4" : "none", "stroke-linejoin": "round" });
    draw(line, "title", {}, `${of.name}: p50 ${ns(figures[of.key].p50)}, p99 ${ns(figures[of.key].p99)}`);
  }
}

const STAGES = [["submit_to_dequeued", "submitted, until the dispatcher sees it"], ["reserved_to_started", "decided, reserved, handed over to the worker's CPU"], ["started_to_finished", "the body"], ["finished_to_resolved", "back to the submitter's CPU"]];
function stages() {
  const known = STAGES.map(([name, title], n) => ({ title, figure: figures[`stage.${name}`], colour: COLOURS[[4, 0, 7, 1][n]] }));
  if (known.some((stage) => !stage.figure)) return by("stages").closest("section").remove();
  const percentiles = [["p50", "p50"], ["p90", "p90"], ["p99", "p99"]];
  const longest = Math.max(...percentiles.map(([of]) => known.reduce((sum, stage) => sum + stage.figure[of], 0)));
  const view = frame("stages", 40 + 44 * percentiles.length, { from: 0, to: longest }, { from: 0, to: percentiles.length, ticks: [] }, ns, String, "each stage's own percentile, end to end");
  percentiles.forEach(([of, label], row) => {
    const [top, bottom] = [view.sy(percentiles.length - row) + 5, view.sy(percentiles.length - row - 1) - 5];
    draw(view.svg, "text", { x: view.box.left - 6, y: (top + bottom) / 2 + 4, "text-anchor": "end" }, label);
    let from = 0;
    for (const stage of known) {
      const value = stage.figure[of];
      const [left, right] = [view.sx(from), view.sx(from + value)];
      draw(draw(view.svg, "rect", { x: left, y: top, width: Math.max(right - left, 0), height: bottom - top, fill: stage.colour }), "title", {}, `${stage.title}: ${ns(value)}`);
      const text = ns(value);
      if (right - left > 7 * text.length + 6) draw(view.svg, "text", { x: (left + right) / 2, y: (top + bottom) / 2 + 4, "text-anchor": "middle", class: "on" }, text);
      from += value;
    }
  });
  key("stages-key", known.map((stage) => [stage.colour, stage.title]));
}

const GROWTH = [["lanes", "One event of the scheduler, by lanes"], ["queued", "The same at eight lanes, by requests queued"], ["turns_by_lanes", "The dispatcher's time for a request, by lanes"], ["turns_by_queued", "The same on one lane, by requests queued"], ["submitters", "One submit, by threads that do it at once"]];
function growth() {
  if (!data.scaling) {
    const section = by("growth");
    return section && section.remove();
  }
  for (const [name] of GROWTH) {
    const points = data.scaling[name];
    const most = Math.max(...points.map((point) => point.ns_p99));
    const view = frame(`growth-${name}`, 190, { from: 0, to: points.length - 1, ticks: points.map((_, n) => n) }, { from: 0, to: most }, (n) => points[n].of.toLocaleString("en"), ns, "");
    for (const [of, width] of [["ns_p99", 1], ["ns_p50", 3]]) draw(view.svg, "path", { d: path(points.map((point, n) => [view.sx(n), view.sy(point[of])])), fill: "none", stroke: COLOURS[0], "stroke-width": width, "stroke-linejoin": "round" });
    for (const [n, point] of points.entries()) draw(draw(view.svg, "circle", { cx: view.sx(n), cy: view.sy(point.ns_p50), r: 4, fill: COLOURS[0] }), "title", {}, `${point.of}: ${ns(point.ns_p50)}, p99 ${ns(point.ns_p99)}`);
  }
}
// Before anything is drawn, since a chart is as wide as its place.
function places() {
  if (!data.scaling) return;
  for (const [name, title] of GROWTH) {
    const box = make("div");
    box.appendChild(make("h3", {}, title));
    box.appendChild(make("div", { class: "chart", id: `growth-${name}` }));
    by("growth-charts").appendChild(box);
  }
}
function saturation() {
  if (!data.scaling) return;
  by("saturates").textContent = `Derived from the dispatcher's time at eight lanes: it keeps them busy with requests of ${time(data.scaling.saturates_below_us / 1e3)} or more.`;
  rows("saturation", ["eight lanes kept busy by requests of", "requests a second", "the dispatcher is busy for"], data.scaling.saturation.map((of) => [time(of.request_us / 1e3), Math.round(of.requests_per_s).toLocaleString("en"), percent(of.dispatcher_busy)]));
}

function paint() {
  nines("round-trips", singles, 420);
  nines("open", beats, 280);
  nines("gangs", gangs, 280);
  if (by("stages")) stages();
  growth();
}
heading();
places();
targets();
table();
saturation();
toggles("legend", singles, paint);
by("open-note").textContent = `By turn(): ${(data.about.open_loop || "").replace("turn_rtt's job", "the same job")}. A stall is not forgiven: those that come meanwhile count it too.`;
key("open-key", beats.map((of) => [of.colour, of.name]));
key("gangs-key", gangs.map((of) => [of.colour, of.name]));
paint();
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(paint, 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
