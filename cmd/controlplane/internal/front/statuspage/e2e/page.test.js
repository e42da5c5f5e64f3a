// Looks at the status page with a real browser. Run by e2e_test.go, which starts
// the control plane and fills it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join } from "node:path";
import { launch } from "./browser.js";

const { STATUS_URL: url, STATUS_TOKEN: token, STATUS_CLUSTER: cluster, STATUS_SERVICE: service, STATUS_SCREENSHOTS: screenshots } = process.env;
// Generous: the machine may be slow and busy.
const patience = 60_000;

let browser;

before(async () => {
	browser = await launch();
});

after(async () => browser?.close());

// visit opens a context whose pages note what goes wrong and what is asked of
// whom.
async function visit(options) {
	const context = await browser.newContext(options);
	context.setDefaultTimeout(patience);
	const page = await context.newPage();
	const wrong = [];
	page.on("console", (message) => {
		if (["error", "warning"].includes(message.type())) wrong.push(message.text());
	});
	page.on("pageerror", (error) => wrong.push(String(error)));
	page.on("dialog", (dialog) => {
		wrong.push(`dialog: ${dialog.message()}`);
		dialog.dismiss();
	});
	page.on("request", (request) => {
		if (!request.url().startsWith(`${url}/`)) wrong.push(`request to ${request.url()}`);
	});
	return { context, page, wrong };
}

async function login(page) {
	await page.goto(`${url}/status`);
	assert.equal(page.url(), `${url}/status/login`);
	await page.getByLabel("Admin token").fill(token);
	await Promise.all([page.waitForURL(`${url}/status`), page.getByRole("button", { name: "Log in" }).click()]);
}

async function picture(page, name) {
	if (screenshots) await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
}

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

test("the page says who may look, shows the tables, and follows what changes", async () => {
	const { context, page, wrong } = await visit({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
	await page.goto(`${url}/status`);
	await picture(page, "login");
	await page.getByLabel("Admin token").fill("not the token, certainly");
	await page.getByRole("button", { name: "Log in" }).click();
	await page.getByText("This is not the admin token.").waitFor();
	// The browser itself notes the 401.
	assert.match(wrong.splice(0).join(), /^[^]*\b401\b[^]*$/);

	await login(page);
	const clusters = page.getByRole("table", { name: "Clusters" });
	const row = clusters.getByRole("row").filter({ has: page.getByRole("rowheader", { name: cluster }) });
	await row.getByRole("cell").nth(7).filter({ hasText: /^4$/ }).waitFor();
	assert.equal(await clusters.getByRole("columnheader").count(), 12);
	assert.equal(await page.getByRole("table", { name: "Regions" }).getByRole("rowheader").count(), 2);
	assert.match(await page.getByRole("table", { name: "Capacity" }).textContent(), /860 of 1,000 pods/);
	assert.match(await clusters.textContent(), /<script>alert\(1\)<\/script>/);
	await page.getByRole("status").filter({ hasText: "live" }).waitFor();

	// Somebody else changes something: it appears, and the page is still the same.
	await page.evaluate(() => { window.untouched = true; });
	const notes = page.locator("details").first();
	await notes.locator("summary").click();
	assert.equal(await notes.evaluate((d) => d.open), false);
	const answer = await fetch(`${url}/api/v1/admin/${service}`, {
		method: "PUT",
		headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
		body: JSON.stringify({ image: "registry.example.com/new:1", replicas: 1 }),
	});
	assert.equal(answer.status, 201);
	await row.getByRole("cell").nth(7).filter({ hasText: /^5$/ }).waitFor();
	assert.equal(await page.evaluate(() => window.untouched), true);
	assert.equal(await page.locator("details").first().evaluate((d) => d.open), false, "what was closed stays closed");

	const [cookie] = await context.cookies();
	assert.equal(cookie.httpOnly, true);
	assert.equal(cookie.sameSite, "Strict");
	assert.ok(!cookie.value.includes(token));
	assert.ok(!(await page.content()).includes(token));

	const other = await context.newPage();
	await other.goto(`${url}/status`);
	await other.getByRole("button", { name: "Log out" }).click();
	await other.waitForURL(`${url}/status/login`);
	await page.waitForURL(`${url}/status/login`);
	assert.deepEqual(await context.cookies(), []);
	assert.deepEqual(wrong, []);
	await context.close();
});

test("a person finds what needs a look, and what to do, in two clicks", async () => {
	const { context, page, wrong } = await visit({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
	await login(page);
	await page.getByRole("link", { name: "1 rejected" }).click();
	await page.waitForURL(`${url}/status/services?q=rejected`);
	const services = page.getByRole("table", { name: "Services" });
	assert.equal(await services.getByRole("rowheader").count(), 1);
	await picture(page, "services");
	await services.getByRole("rowheader").getByRole("link").click();
	await page.getByText("What next: Another program has an object of this name").waitFor();
	assert.match(await page.locator("main").textContent(), /NameTaken/);
	await picture(page, "service");
	await page.getByRole("link", { name: "Services" }).click();
	await page.getByLabel("Search").fill("shop / production");
	await page.getByRole("button", { name: "Search" }).click();
	await page.waitForURL(/q=shop/);
	assert.equal(await services.getByRole("rowheader").count(), 12);
	assert.deepEqual(wrong, []);
	await context.close();
});

for (const javaScriptEnabled of [true, false]) {
	test(`a person finds the held deletion in two clicks, ${javaScriptEnabled ? "with" : "without"} JavaScript`, async () => {
		const { context, page, wrong } = await visit({ javaScriptEnabled, viewport: { width: 1280, height: 900 }, colorScheme: "light" });
		await login(page);
		await page.getByRole("link", { name: "1 held" }).click();
		await page.waitForURL(`${url}/status/clusters?q=held`);
		const clusters = page.getByRole("table", { name: "Clusters" });
		assert.equal(await clusters.getByRole("rowheader").count(), 1);
		await picture(page, "clusters");
		await clusters.getByRole("rowheader").getByRole("link").click();
		await page.getByRole("heading", { name: "Held deletions" }).waitFor();
		assert.match(await page.locator("main").textContent(), /controlplane approve cluster [0-9a-f-]{36} held-1/);
		assert.equal(await page.getByRole("table", { name: "Held deletions" }).getByRole("rowheader").count(), 2);
		await picture(page, "cluster");
		assert.deepEqual(wrong, []);
		await context.close();
	});
}

for (const width of [375, 768, 1280]) {
	for (const colorScheme of width === 768 ? ["light"] : ["light", "dark"]) {
		test(`it fits ${width} px, ${colorScheme}`, async () => {
			const { context, page, wrong } = await visit({ viewport: { width, height: 900 }, colorScheme });
			await page.goto(`${url}/status/login`);
			assert.ok(await overflow(page) <= 0, "the login overflows");
			await login(page);
			await page.getByRole("status").filter({ hasText: "live" }).waitFor();
			assert.ok(await overflow(page) <= 0, "the page overflows");
			const { height } = await page.locator(".as-of").boundingBox();
			assert.ok(height < 40, `the time of the page is ${height} px high: it is squeezed to several lines`);
			const [ground, ink] = await page.evaluate(() => {
				const style = getComputedStyle(document.body);
				return [style.backgroundColor, style.color].map((c) => c.match(/\d+/g).slice(0, 3).reduce((sum, n) => sum + Number(n), 0) / 3);
			});
			assert.equal(ground > ink, colorScheme === "light");
			await picture(page, `${width}-${colorScheme}`);
			await page.goto(`${url}/status/services`);
			assert.ok(await overflow(page) <= 0, "the services overflow");
			await picture(page, `services-${width}-${colorScheme}`);
			await page.getByRole("rowheader").first().getByRole("link").click();
			await page.getByText("Last report").waitFor();
			assert.ok(await overflow(page) <= 0, "a service overflows");
			await picture(page, `service-${width}-${colorScheme}`);
			for (const list of ["clusters", "regions"]) {
				await page.goto(`${url}/status/${list}`);
				assert.ok(await overflow(page) <= 0, `the ${list} overflow`);
				await picture(page, `${list}-${width}-${colorScheme}`);
				for (const link of await page.getByRole("rowheader").getByRole("link").evaluateAll((links) => links.slice(0, 2).map((a) => a.href))) {
					await page.goto(link);
					await page.getByRole("heading", { name: "Last changes" }).waitFor();
					assert.ok(await overflow(page) <= 0, `${link} overflows`);
				}
				await picture(page, `one-of-${list}-${width}-${colorScheme}`);
			}
			assert.deepEqual(wrong, []);
			await context.close();
		});
	}
}

test("without JavaScript the first paint is complete", async () => {
	const { context, page, wrong } = await visit({ javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
	await login(page);
	const clusters = page.getByRole("table", { name: "Clusters" });
	assert.equal(await clusters.getByRole("rowheader").count(), 4);
	assert.match(await clusters.textContent(), /7 objects are not deleted/);
	assert.match(await page.getByRole("table", { name: "Regions" }).textContent(), /2 running|4 inactive/);
	assert.equal(await page.getByRole("table", { name: "Capacity" }).getByRole("rowheader").count(), 4);
	assert.match(await page.locator("time .age").first().textContent(), /ago$/);
	assert.deepEqual(wrong, []);
	await context.close();
});

test("it searches and pages without loading the page again, and the way back works", async () => {
	for (let n = 0; n < 60; n++) {
		const answer = await fetch(`${url}/api/v1/admin/regions/more_${n}`, {
			method: "PUT",
			headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
			body: JSON.stringify({ name: `more-${n}`, platform: "aws" }),
		});
		assert.equal(answer.status, 201);
	}
	const { context, page, wrong } = await visit({ viewport: { width: 375, height: 900 } });
	await page.goto(`${url}/`);
	assert.equal(page.url(), `${url}/status/login`, "the root leads to the page");
	await login(page);
	const regions = page.getByRole("table", { name: "Regions" }).getByRole("rowheader");
	const clusters = page.getByRole("table", { name: "Clusters" }).getByRole("rowheader");
	await regions.nth(49).waitFor();
	assert.equal(await regions.count(), 50);
	assert.match(await regions.first().textContent(), /reg_eu/, "what fails comes first");
	await page.evaluate(() => { window.untouched = true; });

	await page.getByRole("navigation", { name: "Pages of regions" }).getByRole("link", { name: "Next" }).click();
	await page.waitForURL(`${url}/status?regions=2#regions`);
	await page.getByText("51 to 62 of 62").waitFor();
	assert.equal(await regions.count(), 12);
	assert.ok(await overflow(page) <= 0, "the pager overflows");
	await page.getByRole("status").filter({ hasText: "live" }).waitFor();

	await page.getByLabel("Search").fill("lon1");
	await page.getByRole("button", { name: "Search" }).click();
	await page.waitForURL(`${url}/status?q=lon1`);
	await page.getByText(/None of 62 matches/).waitFor();
	assert.equal(await clusters.count(), 1);
	assert.equal(await page.evaluate(() => window.untouched), true);

	await page.goBack();
	await page.waitForURL(`${url}/status?regions=2#regions`);
	await page.getByText("51 to 62 of 62").waitFor();
	assert.equal(await page.getByLabel("Search").inputValue(), "");
	assert.equal(await page.evaluate(() => window.untouched), true);
	await picture(page, "pages");
	assert.deepEqual(wrong, []);
	await context.close();

	// The same without JavaScript.
	const plain = await visit({ javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
	await login(plain.page);
	await plain.page.getByLabel("Search").fill("sgp1");
	await Promise.all([plain.page.waitForURL(`${url}/status?q=sgp1`), plain.page.getByRole("button", { name: "Search" }).click()]);
	assert.equal(await plain.page.getByRole("table", { name: "Clusters" }).getByRole("rowheader").count(), 1);
	assert.deepEqual(plain.wrong, []);
	await plain.context.close();
});
