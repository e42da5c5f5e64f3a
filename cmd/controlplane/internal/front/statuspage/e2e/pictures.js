// Draws the pictures of the documentation. Run by pictures_test.go.

import { after, before, test } from "node:test";
import { join } from "node:path";
import { launch } from "./browser.js";

const { STATUS_URL: url, STATUS_TOKEN: token, STATUS_PICTURES: folder } = process.env;
const wide = { width: 1280, height: 720 };

let browser;

before(async () => {
	browser = await launch();
});

after(async () => browser?.close());

for (const [name, options] of Object.entries({
	"status-light": { viewport: wide, colorScheme: "light" },
	"status-dark": { viewport: wide, colorScheme: "dark" },
	"status-phone": { viewport: { width: 390, height: 780 }, colorScheme: "light", isMobile: true },
})) {
	test(name, async () => {
		const context = await browser.newContext(options);
		const page = await context.newPage();
		await page.goto(`${url}/status`);
		await page.getByLabel("Admin token").fill(token);
		await page.getByRole("button", { name: "Log in" }).click();
		await page.getByRole("status").filter({ hasText: "live" }).waitFor();
		await page.screenshot({ path: join(folder, `${name}.png`) });
		await context.close();
	});
}
