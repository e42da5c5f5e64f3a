// Builds the site as it is published, below /trueup/, and looks at each page with a browser. Variables:
// SITE_CHROMIUM is the browser, SITE_PROFILE a folder for it, SITE_OUT an empty folder for the site, and
// SITE_SCREENSHOTS, if set, one for pictures of the pages.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createReadStream, existsSync, readFileSync, readdirSync, statfsSync, statSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, "../..");
const out = process.env.SITE_OUT;
const base = "/trueup/";
const repository = "https://github.com/seed-9e1ffd66/trueup/";
const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png" };

let server, site, browser;

// fileOf returns the file that answers a path of the site, undefined if there is none.
function fileOf(address) {
	const name = decodeURIComponent(address);
	if (!name.startsWith(base)) {
		return undefined;
	}
	const file = path.join(out, name.slice(base.length), name.endsWith("/") ? "index.html" : "");
	return existsSync(file) && statSync(file).isFile() ? file : undefined;
}

before(async () => {
	await promisify(execFile)(process.execPath, [path.join(here, "node_modules/vitepress/bin/vitepress.js"), "build"], {
		cwd: here, env: { ...process.env, SITE_BASE: base }, timeout: 300_000,
	});
	server = http.createServer((request, response) => {
		const file = fileOf(new URL(request.url, "http://site").pathname);
		if (!file) {
			response.writeHead(404).end();
			return;
		}
		response.writeHead(200, { "Content-Type": kinds[path.extname(file)] ?? "application/octet-stream" });
		createReadStream(file).pipe(response);
	});
	await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
	site = `http://127.0.0.1:${server.address().port}`;
	const { bavail, bsize } = statfsSync("/dev/shm");
	browser = await chromium.launch({
		executablePath: process.env.SITE_CHROMIUM, headless: true, timeout: 120_000,
		env: { ...process.env, HOME: process.env.SITE_PROFILE }, ignoreDefaultArgs: ["--disable-dev-shm-usage"],
		args: [
			"--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
			"--disable-sync", ...(bavail * bsize >= 1 << 29 ? [] : ["--disable-dev-shm-usage"]),
		],
	});
});

after(async () => {
	await browser?.close();
	server?.close();
});

const pages = () => readdirSync(out, { recursive: true }).filter((name) => name.endsWith(".html")).sort();
const unescaped = (text) => text.replaceAll("&amp;", "&").replaceAll("&quot;", '"').replaceAll("&#39;", "'").replaceAll("&lt;", "<").replaceAll("&gt;", ">");
const all = (html, attribute) => [...html.matchAll(new RegExp(`<[a-z][^>]*\\s${attribute}="([^"]*)"`, "g"))].map((m) => unescaped(m[1]));

test("every page of the repository is there, with its title", () => {
	const markdown = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].concat(
		readdirSync(path.join(root, "docs"), { recursive: true }).filter((name) => name.endsWith(".md")).map((name) => path.join("docs", name)));
	const texts = pages().map((name) => readFileSync(path.join(out, name), "utf8"));
	for (const file of markdown) {
		const title = /^# (.*)$/m.exec(readFileSync(path.join(root, file), "utf8"))[1].replaceAll("`", "");
		assert.ok(texts.some((html) => unescaped(html.replace(/<wbr>/g, "")).includes(title)), `${file}: no page has its title, ${title}`);
	}
	assert.ok(pages().length > markdown.length, `${pages().length} pages of ${markdown.length} files, and that for errors`);
});

test("every link and anchor leads somewhere", () => {
	const anchors = new Map(pages().map((name) => {
		const html = readFileSync(path.join(out, name), "utf8");
		return [path.join(out, name), new Set(all(html, "id"))];
	}));
	const wrong = [];
	let looked = 0;
	for (const name of pages()) {
		const html = readFileSync(path.join(out, name), "utf8");
		for (const link of [...all(html, "href"), ...all(html, "src")]) {
			looked++;
			if (link.startsWith("data:")) {
				continue;
			}
			const [target, anchor] = link.split("#");
			if (link.startsWith(repository)) {
				const at = /^(blob|tree|edit)\/main\/(.*)$/.exec(target.slice(repository.length));
				const file = at && path.join(root, at[2]);
				if (at && (!existsSync(file) || statSync(file).isDirectory() !== (at[1] === "tree"))) {
					wrong.push(`${name}: ${link}: is not in the repository`);
				}
				continue;
			}
			if (/^https?:/.test(link)) {
				continue; // a link of the text to another site: the browser test sees that nothing is loaded from one
			}
			const file = target === "" ? path.join(out, name) : fileOf(new URL(target, `http://site${base}${name}`).pathname);
			if (!file) {
				wrong.push(`${name}: ${link}: is not on the site`);
			} else if (anchor && !anchors.get(file)?.has(decodeURIComponent(anchor))) {
				wrong.push(`${name}: ${link}: the page has no such anchor`);
			}
		}
	}
	assert.deepEqual(wrong, []);
	assert.ok(looked > 1000, `${looked} links`);
	console.log(`figure site_links_that_lead_nowhere ${wrong.length} of ${looked}`);
});

test("search finds the pages about prune", async () => {
	const page = await browser.newPage();
	await page.goto(site + base);
	await page.locator(".VPNavBarSearch button").first().click();
	await page.locator("#localsearch-input").fill("prune");
	const results = page.locator(".VPLocalSearchBox .result");
	await results.first().waitFor({ timeout: 60_000 });
	const titles = (await results.allInnerTexts()).join("\n");
	assert.match(titles, /trueup/i);
	await results.first().click();
	await page.waitForURL((url) => url.pathname !== base || url.hash !== "", { timeout: 60_000 });
	assert.match(await page.locator(".vp-doc").innerText(), /prune/i);
	await page.close();
});

test("the switch makes the page, its picture and its plots dark", async () => {
	const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
	const page = await context.newPage();
	await page.goto(site + base);
	const shown = () => page.evaluate(() => ({
		scheme: getComputedStyle(document.documentElement).colorScheme,
		pictures: [...document.querySelectorAll(".vp-doc img[class^=when-]")].filter((i) => i.checkVisibility()).map((i) => i.className),
	}));
	assert.deepEqual((await shown()).pictures, ["when-light"]);
	await page.locator(".VPNavBarAppearance button").click();
	await page.waitForFunction(() => document.documentElement.classList.contains("dark"));
	// The plots are images with colours by prefers-color-scheme, which follows this.
	assert.deepEqual(await shown(), { scheme: "dark", pictures: ["when-dark"] });
	await context.close();
});

test("the diagram of the concepts can be read on a phone", async () => {
	const page = await browser.newPage({ viewport: { width: 390, height: 900 } });
	await page.goto(`${site}${base}concepts.html`);
	const picture = page.locator('.vp-doc img[src*="/concepts."]').first();
	const { width } = await picture.boundingBox();
	assert.ok(width >= 700, `it is ${width} px wide`);
	assert.equal(await picture.evaluate((img) => getComputedStyle(img.parentElement).overflowX), "auto");
	await page.close();
});

for (const colorScheme of ["light", "dark"]) {
	test(`each page fits phones, tablets and desktops, ${colorScheme}`, async () => {
		const context = await browser.newContext({ colorScheme });
		const page = await context.newPage();
		const wrong = [];
		let name = "";
		page.on("console", (message) => ["error", "warning"].includes(message.type()) && wrong.push(`${name}: ${message.text()}`));
		page.on("pageerror", (error) => wrong.push(`${name}: ${error}`));
		page.on("request", (request) => /^(data:|blob:)/.test(request.url()) || request.url().startsWith(site) || wrong.push(`${name}: loads ${request.url()}`));
		page.on("requestfailed", (request) => wrong.push(`${name}: ${request.url()}: ${request.failure().errorText}`));
		for (name of pages().filter((file) => file !== "404.html")) {
			await page.setViewportSize({ width: 1280, height: 900 });
			await page.goto(`${site}${base}${name}`, { waitUntil: "load" });
			await page.waitForFunction(() => document.querySelector("#app")?.__vue_app__);
			assert.equal(await page.evaluate(() => document.documentElement.classList.contains("dark")), colorScheme === "dark");
			for (const width of [1280, 768, 390]) {
				await page.setViewportSize({ width, height: 900 });
				const wide = await page.evaluate(() => {
					const most = document.documentElement.clientWidth;
					if (document.documentElement.scrollWidth <= most) {
						return [];
					}
					const scrolls = (e) => ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX);
					const within = (e) => e.parentElement && (scrolls(e.parentElement) || within(e.parentElement));
					return [...document.body.querySelectorAll("*")]
						.filter((e) => e.getBoundingClientRect().right > most + 1 && !within(e)).map((e) => e.outerHTML.slice(0, 200)).slice(-1);
				});
				wide.forEach((html) => wrong.push(`${name}: wider than ${width} px: ${html}`));
				if (process.env.SITE_SCREENSHOTS) {
					const file = `${name.replaceAll("/", "-").replace(".html", "")}-${width}-${colorScheme}.png`;
					await page.screenshot({ path: path.join(process.env.SITE_SCREENSHOTS, file), fullPage: width === 1280, animations: "disabled" });
				}
			}
		}
		assert.deepEqual(wrong, []);
		await context.close();
	});
}
