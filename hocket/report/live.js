// A live cluster: the manager's state, asked for once a second, as a table and two pictures.
{
  const everyMs = 1000;
  const mostOver = 20;
  const mostNamed = 12;  // jobs and transfers in the texts below the figures
  const mostTransfers = 1500;
  const mostNodes = 3;  // named of those with the same GPUs
  const headings = ["Job", "Doing", "Iteration", "GPUs", "GPU type", "Waited [s]", "JCT [s]", "Tries", "Reason"];
  let state = null;

  function put(id, text) {
    document.getElementById(id).textContent = text;
  }

  function colourOf(index) {
    return colour("series-" + (index % 8 + 1));
  }

  /** The id of a node's GPU, or its number where it has none. */
  function device(server, gpu) {
    return state.devices[server]?.[gpu] ?? gpu;
  }

  /** The type of a node's GPU, as it stands behind its name. */
  function kindOf(server, gpu) {
    const kind = state.gpu_types[server]?.[gpu];
    return kind ? `, ${kind}` : "";
  }

  /** The type that a job has, and in brackets what it may have beside that. */
  function typeText(job) {
    if (!state.gpu_types.length) return "";
    const others = job.accepted_types.filter((kind) => kind !== job.gpu_type).join(" or ");
    if (!job.gpu_type) return `(${others || "any"})`;
    return job.accepted_types.length && !others ? job.gpu_type : `${job.gpu_type} (or ${others || "any"})`;
  }

  /** The GPUs of a job; how many of how many, where that was chosen. */
  function gpusText(job, places) {
    const wanted = job.wanted_min === null ? job.wanted : `${job.wanted_min} to ${job.wanted}`;
    if (!places) return `(${wanted} wanted)`;
    return job.wanted_min === null ? places : `${places} (${job.gpus.length} of ${wanted})`;
  }

  function cellsOf(job) {
    const places = job.gpus.map(([server, gpu]) => state.nodes[server] + ":" + device(server, gpu)).join(", ");
    const waited = job.waited_s ?? Math.max(0, (job.start_s ?? state.now_s) - job.arrival_s);
    return [job.id, job.stage, job.reports ? `${job.iteration}/${job.iterations}` : "\u2013", gpusText(job, places), typeText(job), waited.toFixed(1),
      job.jct_s === null ? "" : job.jct_s.toFixed(2), String(job.attempt), job.reason || job.why];
  }

  function fillTable() {
    const over = state.jobs.filter((job) => job.state !== "running" && job.state !== "queued").sort((a, b) => a.finish_s - b.finish_s);
    put("left-out", state.left_out + Math.max(0, over.length - mostOver));
    const shown = [...state.jobs.filter((job) => job.state === "running"), ...state.jobs.filter((job) => job.state === "queued"), ...over.slice(-mostOver)];
    const body = document.querySelector("#jobs tbody");
    document.getElementById("jobs").classList.toggle("one-type", !state.gpu_types.length);
    body.replaceChildren(...shown.map((job) => {
      const row = document.createElement("tr");
      row.append(...cellsOf(job).map((text, column) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        cell.dataset.heading = headings[column];  // where it is narrow, a job is a list
        return cell;
      }));
      return row;
    }));
  }

  /** The times that a job had GPUs: of attempts that are over, and of the last one. */
  function stays(job) {
    const last = job.placed_s ?? job.start_s;
    const now = job.state === "queued" || last === null ? [] : [{gpus: job.gpus, start: last, end: job.finish_s ?? state.now_s}];
    return [...job.tried.map((tried) => ({gpus: tried.gpus, start: tried.start_s, end: tried.end_s})), ...now];
  }

  /** Who had which GPU: lanes, and bars on them; jobs that share a GPU at a time lie below each other. */
  function residences(indexOf) {
    const ofGpu = state.nodes.flatMap((node, server) =>
      Array.from({length: state.gpus_of_node[server] ?? state.gpus_per_server}, (_, gpu) => ({name: `${node} GPU ${device(server, gpu)}${kindOf(server, gpu)}`, key: `${server}:${gpu}`, ends: [], bars: []})));
    const byKey = new Map(ofGpu.map((gpu) => [gpu.key, gpu]));
    const all = state.jobs.flatMap((job) => stays(job).map((stay) => ({job, ...stay}))).sort((a, b) => a.start - b.start);
    for (const {job, gpus, start, end} of all) {
      for (const [server, number] of gpus) {
        const gpu = byKey.get(`${server}:${number}`);
        if (!gpu) continue;
        let lane = gpu.ends.findIndex((until) => until <= start);
        if (lane < 0) lane = gpu.ends.length;
        gpu.ends[lane] = end;
        gpu.bars.push([lane, start, end, indexOf.get(job.id), job.id]);
      }
    }
    const lanes = [], bars = [];
    for (const gpu of ofGpu) {
      bars.push(...gpu.bars.map(([lane, ...bar]) => [lanes.length + lane, ...bar]));
      lanes.push(gpu.name, ...gpu.ends.slice(1).map((_, k) => `shared, ${k + 2}`));
    }
    return [lanes, bars];
  }

  /** Bars on lanes: `spans` of [lane, start, end, job's index, its name], which is on bars that have room for it. */
  function drawBars(id, lanes, spans) {
    const plot = document.getElementById(id);
    const width = plot.clientWidth;
    const left = Math.min(24 + 7 * Math.max(1, ...lanes.map((lane) => lane.length)), width * 0.4);
    const shades = spans.map((span) => colourOf(span[3]));
    const trace = {
      type: "bar", orientation: "h", y: spans.map((span) => span[0]), base: spans.map((span) => span[1]), x: spans.map((span) => span[2] - span[1]),
      width: 0.8, marker: {color: shades, line: {width: 0}},
      text: spans.map((span) => plain(shortened(span[4], 24))), textposition: "inside", insidetextanchor: "start", textangle: 0, insidetextfont: {color: shades.map(inkOn)},
      hovertext: spans.map((span) => plain(`${span[4]}: ${timeText(span[2] - span[1])}`)), hovertemplate: "%{hovertext}<extra></extra>",
    };
    Plotly.react(plot, [trace], {
      ...baseLayout(), width, height: 26 * Math.max(1, lanes.length) + 60, margin: {l: left, r: 18, t: 10, b: 50, autoexpand: false},
      showlegend: false, barmode: "overlay", hovermode: "closest", uirevision: id, uniformtext: {mode: "hide", minsize: 11},
      xaxis: {...baseAxis("time since the cluster began [s]"), ticks: "outside", ticklen: 4, tickcolor: colour("rule")},
      yaxis: {...baseAxis(""), fixedrange: true, showgrid: false, range: [lanes.length - 0.5, -0.5], tickvals: lanes.map((_, k) => k), ticktext: lanes.map(plain)},
    }, plotOptions);
  }

  function draw() {
    if (state === null) return;
    const indexOf = new Map(state.jobs.map((job, k) => [job.id, k]));
    drawBars("gpu-plot", ...residences(indexOf));
    put("gpu-plot-text", state.jobs.filter((job) => job.state === "running").slice(0, mostNamed)
      .map((job) => `${job.id} on ${job.gpus.map(([server, gpu]) => `${state.nodes[server]} GPU ${device(server, gpu)}`).join(", ")}`).join("; ") || "No job has a GPU.");
    const transfers = state.transfers.slice(-mostTransfers).flatMap(([job, servers, start, end]) =>
      servers.map((server) => [server, start, end ?? state.now_s, indexOf.get(job), job]));
    const open = state.transfers.filter((transfer) => transfer[3] === null);
    put("network-plot-text", `${open.length} of the last ${Math.min(state.transfers.length, mostTransfers)} transfers are under way` +
      (open.length ? `: ${open.slice(0, mostNamed).map(([job, servers]) => `${job} between ${servers.map((s) => state.nodes[s]).join(", ")}`).join("; ")}` : "") + ".");
    drawBars("network-plot", state.nodes.map((node) => `${node} link`), transfers);
  }

  function gpusInAll() {
    return state.nodes.reduce((sum, _, server) => sum + (state.gpus_of_node[server] ?? state.gpus_per_server), 0);
  }

  /** The nodes with their GPUs by type, those with the same ones together. */
  function typedMachines() {
    const alike = new Map();
    state.gpu_types.forEach((kinds, server) => {
      const counts = new Map();
      for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
      const text = [...counts].map(([kind, count]) => `${count} ${kind}`).join(" + ") || "no GPU";
      alike.set(text, [...(alike.get(text) ?? []), state.nodes[server]]);
    });
    return [...alike].map(([text, names]) => `${names.length <= mostNodes ? names.join(" ") : `${names.length} nodes`}: ${text}`).join(", ");
  }

  function machines() {
    if (state.gpu_types.length) return typedMachines();
    if (!state.gpus_of_node.length) return `${state.nodes.length} nodes of ${state.gpus_per_server} GPUs`;
    return `${state.nodes.length} nodes, ${gpusInAll()} GPUs`;
  }

  function show() {
    document.body.classList.remove("unknown");
    const counts = {running: 0, queued: 0, over: 0, failed: 0};
    const used = new Set();
    for (const job of state.jobs) {
      counts[job.state === "running" || job.state === "queued" ? job.state : "over"] += 1;
      counts.failed += job.state === "failed";
      if (job.state === "running") job.gpus.forEach(([server, gpu]) => used.add(`${server}:${gpu}`));
    }
    put("setup", `${state.placement} / ${state.policy} · ${machines()} · ${state.now_s.toFixed(0)} s`
      + (state.drained.length ? ` · drained: ${state.drained.join(", ")}` : "")
      + (state.silent.length ? ` · no answer from ${state.silent.join(", ")}` : ""));
    put("running", counts.running);
    put("gpus", `on ${used.size} of ${gpusInAll()} GPUs`);
    put("queued", counts.queued);
    put("over", counts.over);
    put("failed", counts.failed ? `${counts.failed} of them failed` : "finished, failed or cancelled");
    put("jct", state.average_jct_s === null ? "none yet" : timeText(state.average_jct_s));
    fillTable();
    draw();
  }

  const keptToken = "hocket-token";  // for this tab alone, until it is closed

  /** Ask for the token, and say why if one was given. */
  function askForToken(why) {
    put("setup", why);
    document.getElementById("token-form").hidden = false;
  }

  async function ask() {
    const token = sessionStorage.getItem(keptToken);
    try {
      const answer = await fetch("v1/status", {cache: "no-store", headers: token ? {Authorization: `Bearer ${token}`} : {}});
      const found = await answer.json();
      if (answer.status === 401) {
        askForToken(token ? "That is not this cluster's token." : "This cluster is shown to those who know its token.");
        sessionStorage.removeItem(keptToken);
        return;
      }
      if (found.status) {
        state = found.status;
        show();
      }
    } catch {
      put("setup", "the manager does not answer; jobs go on without it");
    }
    setTimeout(ask, everyMs);
  }

  document.getElementById("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = document.getElementById("token");
    sessionStorage.setItem(keptToken, field.value.trim());
    field.value = "";
    event.target.hidden = true;
    ask();
  });
  document.querySelector("#jobs thead tr").append(...headings.map((heading) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = heading;
    return cell;
  }));
  document.body.classList.add("unknown");
  redraws.push(draw);
  ask();
}
