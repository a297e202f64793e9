"use strict";

let report = null;

/** The text that the script element `id` holds as gzip in base64. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Read the data and plotly, then draw; a browser that cannot says so where figures would be. */
async function unpackAndDraw() {
  try {
    report = JSON.parse(await unpacked("data"));
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script);
    drawFigures();
    document.documentElement.dataset.figures = "drawn";
  } catch (error) {
    document.querySelectorAll(".plot").forEach((plot) => {
      plot.textContent = `This browser cannot draw the figure (${error.message}); tables hold its numbers.`;
    });
    throw error;
  }
}

/** The value of a colour in the style sheet, which differs in the dark. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/** Black or white, whichever is easier to read on `shade` (#rrggbb): 4.5 to 1 or more. */
function inkOn(shade) {
  const linear = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const [red, green, blue] = [1, 3, 5].map((at) => linear(parseInt(shade.slice(at, at + 2), 16) / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/** Text that plotly shows as it stands: it reads labels as a small HTML. */
function plain(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** `text` within `length` characters, its end left off. */
function shortened(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

/** A time in the report's unit, to four digits or so. */
function timeText(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4) + " " + report.unit.symbol;
}

/** What both pictures share: transparent paper, the page's font and colours. */
function baseLayout() {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: {family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink")},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: colour("contour"), activecolor: colour("ink")},
    hoverlabel: {
      bgcolor: colour("paper"), bordercolor: colour("rule"), align: "left",
      font: {family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink")},
    },
  };
}

function baseAxis(title) {
  return {
    title: {text: title, font: {size: 13, color: colour("faint")}, standoff: 10},
    tickfont: {size: 12, color: colour("faint")},
    gridcolor: colour("grid"), linecolor: colour("rule"), zeroline: false,
  };
}

const plotOptions = {
  displaylogo: false,
  displayModeBar: "hover",
  modeBarButtons: [["toImage"]],
  toImageButtonOptions: {format: "svg", filename: "hocket"},
};

const redraws = [];

/** Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten, or the powers alone: plotly's own write 2 for 20. */
function logTicks(lowest, highest) {
  const powers = Array.from({length: 40}, (_, k) => Number((10 ** (k - 20)).toPrecision(1)));
  const ticks = powers.flatMap((power) => [1, 2, 5].map((factor) => Number((factor * power).toPrecision(1))));
  const within = ticks.filter((tick) => tick >= lowest && tick <= highest);
  return within.length > 9 ? within.filter((tick) => powers.includes(tick)) : within;
}

/** Those of `ticks` that have room beside each other on a logarithmic axis of `width` pixels. */
function ticksWithRoom(ticks, lowest, highest, width) {
  const perDecade = width / Math.log10(highest / lowest), kept = [];
  for (const tick of ticks) {
    if (!kept.length || Math.log10(tick / kept.at(-1)) * perDecade >= 14 + 8 * String(tick).length) kept.push(tick);
  }
  return kept;
}

/** Draw now, and again when the window's width or the colour scheme changes. */
function keepDrawn(draw) {
  redraws.push(draw);
  draw();
}

let drawnWidth = window.innerWidth;
let pending = 0;
function redrawSoon() {
  clearTimeout(pending);
  pending = setTimeout(() => redraws.forEach((draw) => draw()), 120);
}
window.addEventListener("resize", () => {
  if (window.innerWidth !== drawnWidth) {
    drawnWidth = window.innerWidth;
    redrawSoon();
  }
});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawSoon);

// On paper the colours are the light ones.
for (const [event, onPaper] of [["beforeprint", true], ["afterprint", false]]) {
  window.addEventListener(event, () => {
    document.documentElement.classList.toggle("on-paper", onPaper);
    redraws.forEach((draw) => draw());
  });
}
