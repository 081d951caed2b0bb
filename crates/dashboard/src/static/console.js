// What pages do beside htmx: the pause of updates, a word when the console does not answer, and the curves.
"use strict";
(() => {
  const paused = () => sessionStorage.getItem("paused") === "1";
  const stale = (text) => {
    const box = document.getElementById("stale");
    if (!box) return;
    box.hidden = !text;
    box.textContent = text || "";
  };
  // Nothing is taken away from below who reads or types there.
  const inUse = () => {
    const data = document.getElementById("data");
    return data && data.contains(document.activeElement);
  };
  document.addEventListener("htmx:beforeRequest", (e) => {
    if (paused() || document.hidden || inUse()) e.preventDefault();
  });
  document.addEventListener("htmx:afterRequest", (e) => {
    if (e.detail.successful) stale("");
  });
  for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(name, () => stale("The console does not answer: what is shown is from before."));
  }

  const showPause = (b) => {
    b.setAttribute("aria-pressed", paused() ? "true" : "false");
    b.textContent = paused() ? "Updates are paused" : "Pause updates";
  };

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const units = (unit) => (v) => {
    if (v === null || v === undefined) return "–";
    if (unit === "µs") return v >= 1000 ? (v / 1000).toFixed(1) + " ms" : v.toFixed(0) + " µs";
    const base = unit === "B/s" ? 1024 : 1000;
    const names = ["", "K", "M", "G", "T", "P"];
    let n = 0;
    while (Math.abs(v) >= base && n < names.length - 1) { v /= base; n++; }
    return (v >= 100 || n === 0 ? v.toFixed(0) : v.toFixed(1)) + names[n] + (unit === "B/s" ? "B/s" : "/s");
  };
  const plots = [];
  const draw = (box, history) => {
    const names = box.dataset.series.split(",");
    const labels = box.dataset.labels.split(",");
    const show = units(box.dataset.unit);
    const data = [history.times, ...names.map((n) => history.series[n] || [])];
    const known = plots.find((p) => p.box === box);
    if (known) { known.plot.setData(data); return; }
    const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 0.5 }, ticks: { stroke: css("--line") } };
    const strokes = [css("--bar"), css("--focus")];
    const plot = new uPlot({
      width: box.clientWidth, height: 210,
      cursor: { drag: { x: false, y: false } },
      axes: [{ ...axis }, {
        ...axis, size: 72, values: (_, all) => all.map(show),
        // Bytes have powers of two as their round numbers.
        ...(box.dataset.unit === "B/s" ? { incrs: Array.from({ length: 56 }, (_, n) => 2 ** n) } : {}),
      }],
      series: [{}, ...names.map((_, i) => ({
        label: labels[i], stroke: strokes[i], width: 2, dash: i ? [6, 4] : undefined,
        value: (_, v) => show(v),
      }))],
    }, data, box);
    plots.push({ box, plot });
  };
  const update = async (now) => {
    const boxes = document.querySelectorAll(".chart[data-series]");
    if (!boxes.length || (plots.length && !now && (paused() || document.hidden))) return;
    const target = document.getElementById("charts").dataset.target;
    try {
      const r = await fetch("/api/history?target=" + encodeURIComponent(target), { credentials: "same-origin" });
      if (!r.ok) throw new Error(r.statusText);
      const history = await r.json();
      boxes.forEach((b) => draw(b, history));
      stale("");
    } catch {
      stale("The console does not answer: what is shown is from before.");
    }
  };
  const start = () => {
    // On a phone the pages stand in a row that is wider than the screen.
    document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    const b = document.getElementById("pause");
    if (b) {
      b.hidden = false;
      showPause(b);
      b.addEventListener("click", () => {
        sessionStorage.setItem("paused", paused() ? "0" : "1");
        showPause(b);
      });
    }
    if (window.uPlot && document.getElementById("charts")) {
      document.getElementById("choice").hidden = false;
      document.getElementById("target").addEventListener("change", (e) => {
        document.getElementById("charts").dataset.target = e.target.value;
        update(true);
      });
      update(true);
      setInterval(() => update(false), 5000);
      window.addEventListener("resize", () =>
        plots.forEach((p) => p.plot.setSize({ width: p.box.clientWidth, height: 210 })));
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
