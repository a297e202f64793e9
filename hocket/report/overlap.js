// Policies in the (rho, overlap) plane, over contours of utilization.
{
  const figure = report.overlap;
  const plot = document.getElementById("overlap");
  const symbols = ["circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon2", "star-triangle-up"];
  const margin = {l: 58, r: 52, t: 34, b: 52};
  const height = 500;
  const spread = 7;  // pixels that a cloud is wide to either side

  /** In [-1, 1), the same at every call: steps keep their places from one drawing to the next. */
  function scatter(i) {
    return ((i * 0.6180339887) % 1) * 2 - 1;
  }

  function contourTraces() {
    return figure.contours.map((contour) => ({
      x: contour.rho, y: contour.overlap, type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
      line: {color: colour("contour"), width: Math.round(contour.utilization * 100) % 10 === 0 ? 1.2 : 0.6},
    }));
  }

  /** Each contour's name where it leaves the picture, above or on the right, if there is room. */
  function contourLabels(pixels) {
    const taken = [];
    const labels = [];
    const majorsFirst = [...figure.contours].sort((a, b) => (b.utilization * 100 % 10 < 0.5) - (a.utilization * 100 % 10 < 0.5));
    for (const contour of majorsFirst) {
      const x = contour.rho.at(-1), y = contour.overlap.at(-1);
      const above = y > 0.999;
      const at = above ? pixels.x(x) : pixels.x(figure.rho_max) + 60 + pixels.y(y);
      if (taken.some((other) => Math.abs(other - at) < (above ? 34 : 20))) continue;
      taken.push(at);
      labels.push({
        x, y, text: Math.round(contour.utilization * 100) + "%", showarrow: false,
        xanchor: above ? "center" : "left", yanchor: above ? "bottom" : "middle",
        xshift: above ? 0 : 4, yshift: above ? 16 : 0, font: {size: 12, color: colour("faint")},
      });
    }
    return labels;
  }

  /** Each policy's name beside its point, moved down or up until no two names touch. */
  function pointLabels(pixels) {
    const placed = [];
    return figure.points.map((point, i) => {
      const x = pixels.x(point.rho), y = pixels.y(point.overlap);
      const roomRight = pixels.x(figure.rho_max) - x - 34, roomLeft = x - 34;
      const left = 7.2 * Math.min(24, point.policy.length) + 8 > roomRight && roomLeft > roomRight;
      const name = shortened(point.policy, Math.min(24, Math.floor(((left ? roomLeft : roomRight) - 8) / 7.2)));
      const width = 7.2 * name.length + 8;
      const start = left ? x - 30 - width : x + 30;
      const free = (top) => placed.every((box) => Math.abs(box.y - top) >= 17 || start > box.x + box.width || box.x > start + width);
      const shift = [0, ...Array.from({length: 40}, (_, k) => [(k + 1) * 3, -(k + 1) * 3]).flat()]
        .find((s) => y + s > 8 && y + s < pixels.y(figure.overlap_min) - 8 && free(y + s));
      if (shift === undefined) return null;
      placed.push({x: start, y: y + shift, width});
      return {
        x: point.rho, y: point.overlap, text: plain(name), ax: left ? -30 : 30, ay: shift, xanchor: left ? "right" : "left",
        arrowhead: 0, arrowwidth: 0.8, arrowcolor: colour(seriesOf(i)), standoff: 6,
        bgcolor: colour("paper"), borderpad: 1, opacity: 0.95, font: {size: 13, color: colour("ink")},
      };
    }).filter((label) => label !== null);
  }

  function seriesOf(i) {
    return "series-" + (i % 8 + 1);
  }

  function pointTraces(perPixel) {
    const clouds = figure.points.map((point, i) => ({
      x: point.cloud.map((_, k) => point.rho + scatter(k) * spread * perPixel), y: point.cloud,
      type: "scatter", mode: "markers", hoverinfo: "skip", showlegend: false,
      marker: {size: 5, color: colour(seriesOf(i)), opacity: 0.22},
    }));
    const means = figure.points.map((point, i) => ({
      x: [point.rho], y: [point.overlap], type: "scatter", mode: "markers", showlegend: false, cliponaxis: false,
      marker: {size: 12, symbol: symbols[i % symbols.length], color: colour(seriesOf(i)), line: {color: colour("paper"), width: 1.5}},
      text: [`<b>${plain(point.policy)}</b><br>step time ${timeText(point.iteration_s * report.unit.per_second)}` +
        `<br>overlap ${point.overlap.toFixed(3)}, rho ${point.rho.toFixed(3)}<br>utilization ${(point.utilization * 100).toFixed(1)}%`],
      hovertemplate: "%{text}<extra></extra>",
    }));
    return [...clouds, ...means.reverse()];
  }

  keepDrawn(() => {
    const width = plot.clientWidth;
    const innerWidth = width - margin.l - margin.r, innerHeight = height - margin.t - margin.b;
    const top = 1.04;
    const pixels = {
      x: (rho) => rho / figure.rho_max * innerWidth,
      y: (overlap) => (top - overlap) / (top - figure.overlap_min) * innerHeight,
    };
    const layout = {
      ...baseLayout(), width, height, margin, hovermode: "closest", hoverdistance: 24, dragmode: false,
      xaxis: {...baseAxis("communication / computation, rho = N / C"), range: [0, figure.rho_max], fixedrange: true, showgrid: false, ticks: "outside", ticklen: 4, tickcolor: colour("rule"), showline: true},
      yaxis: {...baseAxis("overlap coefficient"), range: [figure.overlap_min, top], fixedrange: true, showgrid: false, ticks: "outside", ticklen: 4, tickcolor: colour("rule"), showline: true},
      annotations: [
        ...contourLabels(pixels), ...pointLabels(pixels),
        {xref: "paper", yref: "paper", x: 0, y: 1, yshift: 28, xanchor: "left", yanchor: "middle", showarrow: false, text: "utilization", font: {size: 12, color: colour("faint")}},
      ],
    };
    Plotly.react(plot, [...contourTraces(), ...pointTraces(figure.rho_max / innerWidth)], layout, plotOptions);
  });
}
