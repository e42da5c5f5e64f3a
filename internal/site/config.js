// The site: the pages below docs and those at the root, as GitHub shows them.
//
// VitePress, because it reads CommonMark with GitHub's tables as GitHub does, and has search without a
// service, dark mode and pages for phones; what it needs comes from npm, and a build asks no network.
// It is kept: 1.6 is stable, and pinned; 2.0 is in alpha, with a version of October 2026.
// Zensical calls itself alpha and reads lists and anchors as Python-Markdown does, mkdocs-material stands
// on mkdocs 1.6.1 of 2024, and Astro's Starlight needs Node 22.

import { existsSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";
import { asOnGitHub, slug } from "./github.js";

const here = path.dirname(fileURLToPath(import.meta.url));
export const root = path.resolve(here, "../..");
const icon = "cmd/controlplane/internal/front/statuspage/assets/icon.svg";
export const repository = "https://github.com/seed-9e1ffd66/trueup";

const generated = "Settings and fields";

// On a phone the diagram keeps the size at which it can be read, and scrolls, as tables do. The first column of a
// table, with the words, is not squeezed by numbers.
const style = `@media (max-width: 720px) {
	.vp-doc p:has(> img[src*="/concepts."]) { overflow-x: auto; }
	.vp-doc img[src*="/concepts."] { width: 760px; max-width: none; }
}
.vp-doc th:first-child { min-width: 8.5rem; }`;

// Each page with its place: the address, the file, and what the navigation calls it. The first is the home.
const parts = [
	["Start", [
		["index", "README.md", "What it is"], ["tutorial", "docs/tutorial.md", "Tutorial"], ["concepts", "docs/concepts.md", "Concepts"],
	]],
	["How-to", [
		["packages", "docs/packages.md", "Choose a package"], ["adopting", "docs/adopting.md", "Adopt it in an operator"],
		["testing", "docs/testing.md", "Test a controller"], ["provider", "docs/provider.md", "Write a provider"],
		["running", "docs/running.md", "Run a fleet"], ["runbooks", "docs/runbooks.md", "Runbooks"],
		["releasing", "docs/releasing.md", "Release"],
	]],
	["Reference", [
		["command", "docs/command.md", "The command trueup"], ["programs", "docs/programs.md", "Programs"],
		["api", "docs/api.md", "API of the control plane"], ["protocol", "docs/protocol.md", "Protocol of statesync"],
		["versions", "docs/versions.md", "Versions"],
	]],
	[generated, []], // docs/reference, below
	["Compare", [
		["compare", "docs/compare.md", "Or something else"], ["figures", "docs/figures.md", "Figures"],
		["published", "docs/published.md", "Published controllers"],
	]],
	["Project", [
		["changelog", "CHANGELOG.md", "Changes"], ["contributing", "CONTRIBUTING.md", "Contributing"], ["security", "SECURITY.md", "Security"],
		["conduct", "CODE_OF_CONDUCT.md", "Code of conduct"], ["roadmap", "docs/roadmap.md", "Roadmap"],
		["expected", "docs/expected.md", "What is expected"],
	]],
];
const markdown = (folder) => (existsSync(path.join(root, folder)) ? readdirSync(path.join(root, folder)) : [])
	.filter((name) => name.endsWith(".md")).sort().map((name) => path.posix.join(folder, name));
for (const file of markdown("docs/reference")) {
	const name = path.basename(file, ".md").replace("README", "index");
	const title = name === "index" ? "All of them" : name.replace(/^kinds-/, "Kinds of ");
	parts.find(([part]) => part === generated)[1].push([`reference/${name}`, file, title]);
}

// A page that is written later has its place already; one without a place is an error.
export const pages = parts.flatMap(([, list]) => list).filter(([, file]) => existsSync(path.join(root, file)));
const placed = new Set(pages.map(([, file]) => file));
const lost = [...markdown("."), ...markdown("docs"), ...markdown("docs/reference")].filter((file) => !placed.has(file));
if (lost.length > 0) {
	throw new Error(`internal/site/config.js: ${lost.join(", ")}: is in no part of the navigation, must be in one`);
}

// A folder with a README is that page, as on GitHub.
const addresses = new Map(pages.flatMap(([address, file]) => [[file, address], [file.replace(/\/README\.md$/, ""), address]]));
const bare = (address) => `/${address}`.replace(/\/index$/, "/");

export default defineConfig({
	title: "trueup",
	description: "A Go SDK for programs that make the world match a desired state.",
	lang: "en",
	head: [["link", { rel: "icon", href: `data:image/svg+xml,${encodeURIComponent(readFileSync(path.join(root, icon), "utf8"))}` }], ["style", {}, style]],
	// On GitHub Pages the site is below the name of the repository: SITE_BASE=/trueup/. SITE_OUT is for tests.
	base: process.env.SITE_BASE ?? "/",
	srcDir: root,
	// Everything but the pages.
	srcExclude: [
		...readdirSync(root, { withFileTypes: true }).filter((e) => e.isDirectory() && e.name !== "docs").map((e) => `${e.name}/**`),
		"**/node_modules/**",
	],
	rewrites: Object.fromEntries(pages.map(([address, file]) => [file, `${address}.md`])),
	outDir: process.env.SITE_OUT ?? path.join(root, "dist/site"),
	cacheDir: path.join(here, "node_modules/.vitepress"),
	metaChunk: true,
	vite: {
		// The pages lie outside of this folder, from where its modules are not found.
		plugins: [{
			name: "modules of the site",
			enforce: "pre",
			resolveId(id) {
				return /^vue(\/|$)/.test(id) ? this.resolve(id, path.join(here, "config.js"), { skipSelf: true }) : null;
			},
		}],
	},
	// Wide tables get the place of the outline.
	transformPageData: (page) => {
		page.frontmatter.aside = !/^(api|reference\/kinds-.*)\.md$/.test(page.relativePath);
	},
	markdown: {
		anchor: { slugify: slug },
		config: (md) => asOnGitHub(md, { root, repository, addresses }),
	},
	themeConfig: {
		nav: [
			...(addresses.has("docs/tutorial.md") ? [{ text: "Tutorial", link: "/tutorial" }] : []),
			{ text: "Reference", link: "/command" }, { text: "Compare", link: "/compare" },
		],
		sidebar: parts.map(([text, list]) => ({
			text,
			collapsed: text === generated,
			items: list.filter(([, file]) => placed.has(file)).map(([address, , title]) => ({ text: title, link: bare(address) })),
		})).filter(({ items }) => items.length > 0),
		outline: { level: [2, 3] },
		search: { provider: "local" },
		socialLinks: [{ icon: "github", link: repository }],
		editLink: { pattern: `${repository}/edit/main/:path`, text: "Edit this page" },
	},
});
