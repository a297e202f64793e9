// Every figure of every paper: a grid of panels each, drawn when it comes into view.
{
  const numbers = {};
  const places = [];
  const mostNamed = 6;

  function digits(value) {
    return typeof value === "number" ? String(Number(value.toPrecision(3))) : value;
  }

  /** What each series shows, in numbers: its ends and its least and greatest value. */
  function textOf(panel) {
    const said = panel.series.slice(0, mostNamed).map(({name, x, y, base}) => {
      if (base) return `${name}: ${x.length} spans from ${digits(Math.min(...base))} to ${digits(Math.max(...base.map((from, i) => from + x[i])))}`;
      const known = y.filter((value) => value !== null);
      const range = known.length ? `${panel.y} ${digits(Math.min(...known))} to ${digits(Math.max(...known))}` : "no value";
      return x.length > 1 ? `${name}: ${range}, for ${digits(x[0])} to ${digits(x.at(-1))}` : `${name}: ${range}`;
    });
    return said.join("; ") + (panel.series.length > mostNamed ? `; and ${panel.series.length - mostNamed} more` : "");
  }

  for (const figure of report.figures) {
    const number = numbers[figure.paper] ?? 0;
    numbers[figure.paper] = number + 1;
    const grid = document.querySelector(`[data-figure="${figure.paper}-${number}"]`);
    for (const panel of figure.panels) {
      const whole = document.createElement("figure"), title = document.createElement("h4");
      const place = document.createElement("div"), text = document.createElement("figcaption");
      title.textContent = panel.title;
      place.className = "panel plot";
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", `${figure.number}: ${figure.caption} ${panel.title}`);
      place.style.minHeight = "330px";
      text.textContent = textOf(panel);
      text.id = `figure-${places.length}-text`;
      place.setAttribute("aria-describedby", text.id);
      whole.append(title, place, text);
      grid.append(whole);
      places.push({place, panel, seen: false});
    }
  }

  function trace(series, i) {
    const shade = colour("series-" + (i % 8 + 1));
    const common = {name: plain(series.name), showlegend: true};
    if (series.kind === "bars" && series.base) {
      return {...common, type: "bar", orientation: "h", x: series.x, y: series.y, base: series.base, width: 0.8, marker: {color: shade, line: {color: colour("paper"), width: 1}}};
    }
    if (series.kind === "bars") {
      return {...common, type: "bar", x: series.x.map((x) => typeof x === "string" ? plain(x) : x), y: series.y, marker: {color: shade}};
    }
    const drawn = series.kind === "points" ? {mode: "markers", marker: {color: shade, size: series.x.length > 200 ? 4 : 8, opacity: series.x.length > 200 ? 0.5 : 0.9}}
      : {mode: "lines", line: {color: shade, width: 2, dash: i < 8 ? "solid" : "dot"}};
    return {...common, type: "scatter", x: series.x, y: series.y, ...drawn};
  }

  function draw({place, panel}) {
    const lanes = panel.series.some((series) => series.base);
    const named = panel.series.some((series) => typeof series.x[0] === "string");
    const longest = named ? Math.max(...panel.series.flatMap(({x}) => x.map((each) => String(each).length))) : 0;
    const legendRows = panel.series.length > 5 ? panel.series.length : 2;  // names are as wide as a narrow panel then
    const layout = {
      ...baseLayout(), width: place.clientWidth, height: (named ? 320 : 290) + 20 * legendRows, margin: {l: 62, r: 12, t: 18, b: 44}, showlegend: panel.series.length > 1,
      dragmode: false, hovermode: lanes || named ? "closest" : "x", barmode: lanes ? "overlay" : panel.stacked ? "stack" : "group",
      legend: {orientation: "h", font: {size: 11}, x: 0, y: 1.0, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)"},
      xaxis: {...baseAxis(panel.x), type: named ? "category" : panel.x_log ? "log" : "linear", fixedrange: true, automargin: true, ...(named ? {tickangle: longest > 6 ? -90 : 0} : {})},
      yaxis: {...baseAxis(panel.y), type: panel.y_log ? "log" : "linear", fixedrange: true, automargin: true},
    };
    if (lanes) layout.yaxis = {...layout.yaxis, autorange: "reversed", tickvals: panel.lanes.map((_, i) => i), ticktext: panel.lanes.map(plain)};
    Plotly.react(place, panel.series.map(trace), layout, plotOptions);
  }

  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const each = places.find(({place}) => place === entry.target);
      if (entry.isIntersecting && !each.seen) {
        each.seen = true;
        draw(each);
      }
    }
  }, {rootMargin: "600px"});
  for (const {place} of places) watch.observe(place);

  // On paper nothing is out of view.
  window.addEventListener("beforeprint", () => places.forEach((each) => { each.seen = true; }));
  redraws.push(() => places.filter(({seen}) => seen).forEach(draw));
}
