#!/usr/bin/env bash
# The pages that --report writes, in a real browser without a network: they must draw everything, at a desk's width and at a phone's, raise
# no error, and not be wider than the window.
#
#   tools/ci/report.sh [FOLDER]      keeps the pages and the pictures in FOLDER, to look at
source "$(dirname "$0")/lib.sh"
need chromium chromium || exit 0
out="${1:-}"
if [ -z "$out" ]; then
    out="$(mktemp -d)"
    trap 'rm -rf "$out"' EXIT
fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"
say "reports in a browser"
cargo build --release --quiet
phalanx=(cargo run --quiet --release -- )
"${phalanx[@]}" sim --quiet --requests 20000 --seeds 2 --policy balance,easy,fcfs,small-first,server-filling --report "$out/sim.html"
"${phalanx[@]}" run --quiet --duration 2s --report "$out/run.html"
"${phalanx[@]}" bench --quiet --rounds 3 --samples 1000 --rate 50000 --scaling --report "$out/bench.html"

# No ampersand in them: bash puts what it replaces there. The checks run in the page itself, after it has drawn; they tell their verdict to the frame around it.
begin='<script>addEventListener("load", () => setTimeout(() => {
  const wrong = [...window.wrong];
  const count = (what) => document.querySelectorAll(what).length;
  const least = (n, what, name) => { if (count(what) < n) wrong.push(`${count(what)} ${name}, not ${n}`); };
  const switches = (where) => {
    const button = document.querySelector("#legend button");
    if (!button) return;
    const before = count(`${where} path`);
    button.click();
    if (count(`${where} path`) !== before - 1) wrong.push("what is switched off stays");
    button.click();
  };'
end='
  const page = document.documentElement;
  if (page.scrollWidth > window.innerWidth) wrong.push(`${page.scrollWidth} pixels wide in a window of ${window.innerWidth}`);
  parent.postMessage(`${window.innerWidth} pixels: ${wrong.join("; ") || "good"}`, "*");
}, 300));</script>'
runs='
  const policies = document.querySelectorAll("#table tr").length - 1;
  if (!policies) wrong.push("no policy in the table");
  least(1, "#small path", "curves of small responses");
  least(3, "#usage path", "areas of GPU time");
  least(2, "#queues path", "queues");
  if (policies > 1) { least(3, "#tradeoff circle[r=\"6\"]", "policies in the trade-off"); least(4, "#tradeoff circle[r=\"3.5\"]", "points of the curve"); least(policies, "#legend button", "buttons"); }
  const canvas = document.querySelector("#timeline canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  if (colours.size < 4) wrong.push("an empty timeline");
  document.querySelector("#in").click();
  if (!document.querySelector("#shown").textContent.startsWith("30 s")) wrong.push("zooming does nothing");
  switches("#small");'
latencies='
  least(8, "#round-trips path", "systems"); least(8, "#legend button", "buttons");
  least(2, "#open path", "of closed and open loop"); least(4, "#gangs path", "gangs");
  least(12, "#stages rect", "stages"); least(10, "#growth-charts path", "lines of costs"); least(5, "#saturation tr", "request lengths");
  least(20, "#table tr", "figures"); least(8, "#targets tr", "promises");
  // A line that is flat, or leaves its chart, is no distribution.
  for (const line of document.querySelectorAll("#round-trips path")) {
    const box = line.getBBox();
    if (Math.min(box.width / 50, box.height / 5) < 1) wrong.push(`${line.textContent}: ${box.width} by ${box.height}`);
    if (Math.min(box.x, box.y) < 0) wrong.push(`${line.textContent}: outside`);
  }
  if (document.body.innerText.match(/NaN|undefined|Infinity/)) wrong.push("a number that is none");
  switches("#round-trips");'
errors='<script>window.wrong = []; addEventListener("error", (e) => wrong.push(e.message));</script>'
failed=0
browse=(chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,4000 --virtual-time-budget=5000)
# Nothing of the page may need a network.
browse+=(--host-resolver-rules='MAP * ~NOTFOUND')
for name in sim run bench; do
    check="$begin$runs$end"
    [ $name != bench ] || check="$begin$latencies$end"
    page="$(<"$out/$name.html")"
    page="${page/<head>/<head>$errors}"
    printf '%s' "${page/<\/body>/$check</body>}" >"$out/$name-check.html"
    for width in 1280 390; do
        # In a frame of the wanted width: a browser's window is never as narrow as a phone.
        frame="$out/$name-$width-frame.html"
        echo "<!doctype html><title>no verdict</title><body style='margin:0'><script>addEventListener('message', (e) => { document.title = e.data; })</script>
              <iframe src='$name-check.html' style='border:0;width:${width}px;height:4000px'></iframe>" >"$frame"
        "${browse[@]}" "--screenshot=$out/$name-$width.png" "file://$frame" >/dev/null 2>&1
        verdict="$("${browse[@]}" --dump-dom "file://$frame" 2>/dev/null | grep -o '<title>[^<]*' || echo '<title>no answer')"
        verdict="${verdict#<title>}"
        echo "$name.html in $width: $verdict"
        [ "$verdict" = "$width pixels: good" ] || failed=1
        rm "$frame"
    done
    rm "$out/$name-check.html"
done
exit $failed
