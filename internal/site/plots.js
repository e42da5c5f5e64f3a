// Draws the plots of measured figures: docs/plots/*.svg. Usage: node plots.js [FILE [FOLDER]]
//
// FILE has lines "figure NAME VALUE UNIT", as the commands that measure print them; others are passed over.
// Two lines of one name are a range. A plot whose figures are not all in the file is left as it is.
// The colours are variables of the picture, so that one file serves light and dark pages.

import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as vega from "vega";
import { compile } from "vega-lite";

const folder = fileURLToPath(new URL("../../docs/plots", import.meta.url));
const [from = path.join(folder, "figures.txt"), to = folder] = process.argv.slice(2);

// read returns the values of each name, with the unit.
export function read(text) {
	const figures = new Map();
	for (const line of text.split("\n")) {
		const [word, name, value, unit, ...more] = line.trim().split(/\s+/);
		if (word !== "figure" || unit === undefined || more.length > 0) {
			continue;
		}
		if (!/^-?\d+(\.\d+)?$/.test(value)) {
			throw new Error(`${name}: is "${value}", must be a number`);
		}
		figures.set(name, { unit, values: [...(figures.get(name)?.values ?? []), Number(value)] });
	}
	return figures;
}

// shown is a value with its unit, in the unit that people read: 2.3 ms, not 2300 us.
const steps = { us: ["µs", 1000, "ms"], ms: ["ms", 1000, "s"] };
export function shown(value, unit) {
	if (steps[unit] && value >= steps[unit][1]) {
		return shown(value / steps[unit][1], steps[unit][2]);
	}
	const text = value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 2 : 0 });
	return unit === "requests" ? text : `${text} ${steps[unit]?.[0] ?? unit}`;
}

const ours = "trueup";
// Each plot: the file, the title, the second line, and what it shows: bars, dots on a logarithmic axis, or a line.
const plots = [
	{
		file: "at-rest-requests", title: "Requests at rest", under: "per unchanged object and pass; less is better", kind: "bars",
		rows: [
			[ours, "trueup.sweep_requests_per_object"], ["flux ssa", "flux_4.sweep_requests_per_object"],
			["one apply each", "plain_8.sweep_requests_per_object"], ["CreateOrUpdate", "CreateOrUpdate.sweep_requests_per_object"],
			["wrangler", "wrangler_0.1.sweep_requests_per_object"],
		],
	},
	{
		file: "at-rest-time", title: "A pass at rest", under: "time per unchanged object, logarithmic; left is better", kind: "dots",
		rows: [
			[ours, "trueup.sweep_us_per_object"], ["flux ssa", "flux_4.sweep_us_per_object"], ["one apply each", "plain_8.sweep_us_per_object"],
			["CreateOrUpdate", "CreateOrUpdate.sweep_us_per_object"], ["wrangler", "wrangler_0.1.sweep_us_per_object"],
		],
	},
	{
		file: "memory", title: "Memory per watched object", under: "resident, with 100,000 Deployments; less is better", kind: "bars",
		rows: [
			[ours, "trueup.resident_bytes_per_object"], ["cache of objects", "informer.resident_bytes_per_object"],
			["cache of metadata", "metadata_informer.resident_bytes_per_object"],
			["without managedFields", "stripped_metadata_informer.resident_bytes_per_object"],
		],
	},
	{
		file: "delivery", title: "CPU to deliver one change to one client", kind: "line",
		under: "of a server with so many resources; less is better", along: "resources", at: [10, 1000, 4000],
		series: [[ours, "trueup_cpu_per_delivery_"], ["go-control-plane", "controlplane_cpu_per_delivery_"]],
	},
	{
		file: "growth", title: "What an object costs among more of them", kind: "line", logarithmic: true,
		under: "CPU for each object, logarithmic; lower is better, level: it does not grow",
		along: "objects", at: [1000, 10000, 100000, 1000000],
		series: [
			["flux ssa, pass at rest", "growth_flux_sweep_us_", [1000, 10000]], ["trueup, first pass with its lists", "growth_restart_us_"],
			["trueup, prune of one in a thousand", "growth_prune_us_"], ["trueup, pass at rest", "growth_sweep_us_"],
		],
	},
	{
		file: "stalled-writer", title: "Commit to reader while one writer does not commit for 4 s",
		under: "p50 and p99, logarithmic; left is better", kind: "dots",
		rows: [
			[ours, "S3_trueup_stalled_p50", "S3_trueup_stalled_p99"], ["kine", "S3_kine_stalled_p50", "S3_kine_stalled_p99"],
			["a poll every second", "S3_poll_stalled_p50", "S3_poll_stalled_p99"],
		],
	},
	{
		file: "placement", title: "Pods placed on machines in a second", kind: "bars",
		under: "times karpenter's scheduler, the same machines; more is better",
		rows: [
			["8 instance types", "pool_demand_ratio_karpenter_8"], ["40 instance types", "pool_demand_ratio_karpenter_40"],
		],
		all: true,
	},
	{
		file: "unchanged", title: "Apply 1,000 unchanged objects again", under: "seconds, logarithmic; left is better", kind: "dots",
		rows: [
			[ours, "cli_seconds_again_1000"], ["kubectl --server-side", "cli_seconds_again_1000_kubectl_server_side"],
			["kubectl --prune", "cli_seconds_again_1000_kubectl_prune"], ["kubectl --applyset", "cli_seconds_again_1000_kubectl_applyset"],
			["helm", "cli_seconds_again_1000_helm"], ["kapp", "cli_seconds_again_1000_kapp"],
		],
	},
];

const colour = { ink: "var(--ink)", faint: "var(--faint)", rule: "var(--rule)", ours: "var(--ours)", theirs: "var(--theirs)" };
const config = {
	background: null, font: "sans-serif", view: { stroke: null },
	axis: {
		labelColor: colour.ink, titleColor: colour.faint, labelFontSize: 13, titleFontSize: 13, titleFontWeight: "normal",
		gridColor: colour.rule, domainColor: colour.rule, tickColor: colour.rule, labelLimit: 240,
	},
	title: {
		color: colour.ink, subtitleColor: colour.faint, fontSize: 16, subtitleFontSize: 13, anchor: "start", offset: 14, frame: "bounds",
		subtitlePadding: 6,
	},
};

// rowsOf has an entry for each row: the lowest and the highest value, and both as text.
function rowsOf(plot, figures) {
	return plot.rows.map(([name, ...of]) => {
		const values = of.flatMap((figure) => figures.get(figure).values);
		const { unit } = figures.get(of[0]);
		const [low, high] = [Math.min(...values), Math.max(...values)];
		const [first, last] = [shown(low, unit), shown(high, unit)];
		const sameUnit = first.split(" ")[1] === last.split(" ")[1];
		const text = low === high ? first : `${sameUnit ? first.split(" ")[0] : first} to ${last}`;
		return { name, low, high, text, own: name === ours || plot.all === true, unit };
	});
}

const ownColour = { condition: { test: "datum.own", value: colour.ours }, value: colour.theirs };

function spec(plot, figures) {
	const base = {
		title: { text: plot.title, subtitle: plot.under }, width: 520, config,
		autosize: { type: "fit-x", contains: "padding" }, padding: { left: 8, right: 12, top: 8, bottom: 8 },
	};
	if (plot.kind === "line") {
		const values = plot.series.flatMap(([name, prefix, sizes = plot.at]) => sizes.map((at) => {
			const { values: [value], unit } = figures.get(prefix + at);
			return {
				name, at, value, text: `${value.toLocaleString("en")} ${steps[unit][0]}`, own: name.startsWith(ours), last: at === sizes.at(-1),
				named: at === (plot.logarithmic ? sizes[0] : sizes.at(-1)), lowest: prefix === plot.series.at(-1)[1],
			};
		}));
		const last = plot.at.at(-1);
		const x = {
			field: "at", type: "quantitative", axis: { title: plot.along, values: plot.at, grid: false, format: ",d", ...(plot.logarithmic ? { labelOverlap: false } : {}) },
			scale: plot.logarithmic ? { type: "log", domain: [plot.at[0] / 1.5, last * 4], nice: false } : { domain: [0, last * 1.25], nice: false },
		};
		const y = {
			field: "value", type: "quantitative", axis: { title: "µs", tickCount: 4, ...(plot.logarithmic ? { format: "~g" } : {}) },
			...(plot.logarithmic ? { scale: { type: "log" } } : {}),
		};
		// Of a logarithmic plot the names stand at the beginning: above the line, that of the lowest below it.
		const names = (filter, dy) => ({
			transform: [{ filter }], mark: { type: "text", align: plot.logarithmic ? "left" : "right", dy, fontSize: 13, fill: colour.ink },
			encoding: { text: { field: "name" } },
		});
		// The value at the end of the lowest line is a little below it: another one may be close above.
		const ends = (filter, dy) => ({
			transform: [{ filter }], mark: { type: "text", align: "left", dx: 8, dy, fontSize: 13, fill: colour.ink },
			encoding: { text: { field: "text" } },
		});
		return {
			...base, height: 220, data: { values }, encoding: { x, y },
			layer: [
				{ mark: { type: "line", strokeWidth: 2.5 }, encoding: { detail: { field: "name" }, color: ownColour } },
				{ mark: { type: "point", filled: true, size: 60, opacity: 1 }, encoding: { color: ownColour } },
				...(plot.logarithmic
					? [names("datum.named && !datum.lowest", -16), names("datum.named && datum.lowest", 18)]
					: [names("datum.named", -12)]),
				...(plot.logarithmic ? [ends("datum.last && !datum.lowest", 0), ends("datum.last && datum.lowest", 7)] : [ends("datum.last", 0)]),
			],
		};
	}
	const values = rowsOf(plot, figures);
	const y = {
		field: "name", type: "nominal", sort: null,
		axis: { title: null, domain: false, ticks: false, labelPadding: 8, labelLimit: 240 },
	};
	const text = {
		mark: { type: "text", align: "left", dx: plot.kind === "bars" ? 6 : 10, fontSize: 13, fill: colour.ink },
		encoding: { x: { field: "high", type: "quantitative" }, text: { field: "text" } },
	};
	const highest = Math.max(...values.map(({ high }) => high));
	if (plot.kind === "bars") {
		// The bar ends at the lowest value, a line goes on to the highest; its label has room.
		const x = {
			field: "low", type: "quantitative", axis: { title: null, labels: false, ticks: false, domain: false, grid: false },
			scale: { domain: [0, highest * 1.35], nice: false },
		};
		const bar = { mark: { type: "bar", height: 18, cornerRadiusEnd: 2 }, encoding: { x, color: ownColour } };
		const range = {
			transform: [{ filter: "datum.high > datum.low" }], mark: { type: "rule", strokeWidth: 3 },
			encoding: { x: { field: "low", type: "quantitative" }, x2: { field: "high" }, color: ownColour },
		};
		return { ...base, height: { step: 30 }, data: { values }, encoding: { y }, layer: [bar, range, text] };
	}
	const lowest = Math.min(...values.map(({ low }) => low));
	const decades = [];
	for (let power = Math.floor(Math.log10(lowest)); 10 ** power <= highest; power++) {
		decades.push(Number(`1e${power}`));
	}
	const labels = decades.map((at) => `datum.value < ${at * 1.5} ? '${shown(at, values[0].unit)}' : `).join("");
	const x = {
		field: "low", type: "quantitative", scale: { type: "log", domain: [decades[0], highest * (highest / decades[0]) ** 0.4], nice: false },
		axis: {
			title: null, ticks: false, domain: false, values: decades, labelOverlap: false, labelFlush: false,
			labelExpr: `${labels}''`, labelColor: colour.faint,
		},
	};
	const point = { type: "point", filled: true, size: 90, opacity: 1 };
	const layer = [
		{ mark: { type: "rule", strokeWidth: 3 }, encoding: { x, x2: { field: "high" }, color: ownColour } },
		{ mark: point, encoding: { x, color: ownColour } },
		{ mark: point, encoding: { x: { field: "high", type: "quantitative" }, color: ownColour } },
	];
	return { ...base, height: { step: 30 }, data: { values }, encoding: { y }, layer: [...layer, text] };
}

const style = `<style>
:root { --ink: #1f2328; --faint: #59636e; --rule: #d1d9e0; --ours: #1f5fa8; --theirs: #8b949e }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9aa4af; --rule: #30363d; --ours: #6cb0f5; --theirs: #768390 } }
</style>`;

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

// A warning of the library is an error, but for one about the height, which is that of the rows.
const logger = vega.logger(vega.Warn, "error", (_, level, [message]) => {
	if (!message.includes('"fit-y"')) {
		throw new Error(`${level}: ${message}`);
	}
});

async function draw(plot, figures) {
	const view = new vega.View(vega.parse(compile(spec(plot, figures), { logger }).spec), { renderer: "none" });
	const svg = await view.toSVG();
	return svg.replace(/^(<svg[^>]*)>/, `$1 role="img">\n<title>${escaped(plot.title)}, ${escaped(plot.under)}</title>\n${style}\n`) + "\n";
}

const needed = (plot) => plot.rows?.flatMap(([, ...of]) => of) ?? plot.series.flatMap(([, prefix, at = plot.at]) => at.map((n) => prefix + n));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
	const figures = read(readFileSync(from, "utf8"));
	for (const plot of plots) {
		const missing = needed(plot).filter((name) => !figures.has(name));
		if (missing.length > 0) {
			console.log(`${plot.file}: left as it is: ${from} lacks ${missing.length} figures, such as ${missing[0]}`);
			continue;
		}
		const file = path.join(to, `${plot.file}.svg`);
		writeFileSync(file, await draw(plot, figures));
		console.log(path.relative(process.cwd(), file));
	}
}
