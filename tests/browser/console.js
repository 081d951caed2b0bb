// Flows through the console in a real Chromium: node console.js URL TOKEN FOLDER-FOR-SCREENSHOTS
// The test that starts it kills an OST when this prints "open", and starts it again when this prints "dead".
// NODE_PATH has playwright-core and axe-core.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");

const [url, token, folder] = process.argv.slice(2);
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["overview", "topology", "capacity", "performance", "top", "directories", "recovery", "requests", "movements",
  "checks", "policies", "config", "quotas", "doctor", "actions"];
const SIZES = { phone: [390, 844], tablet: [820, 1180], desktop: [1440, 900] };
const PATIENCE = 60_000;

// What a page complains of: a script or style that the policy refused, an error of a script.
const watch = (page, wrong) => {
  page.on("console", (m) => { if (m.type() === "error") wrong.push(`${page.url()}: ${m.text()}`); });
  page.on("pageerror", (e) => wrong.push(`${page.url()}: ${e}`));
  page.on("request", (r) => { if (!r.url().startsWith(url)) wrong.push(`${page.url()} asks ${r.url()}`); });
};

const accessible = async (page, where) => {
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const all = found.violations.map((v) => `${where}: ${v.impact} ${v.id}: ${v.nodes.map((n) => n.html).slice(0, 3).join(" | ")}`);
  assert.deepStrictEqual(all, [], "axe found something");
};

const logIn = async (page) => {
  await page.goto(url + "/overview");
  assert(page.url().includes("/login"), "who is nobody is asked who he is");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
};

const fits = async (page, where) => {
  const [wide, width] = await page.evaluate(() => [document.scrollingElement.scrollWidth, window.innerWidth]);
  assert(wide <= width, `${where} is ${wide} wide on ${width}`);
};

const shoot = async (browser, wrong) => {
  for (const [size, [width, height]] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme });
      const page = await context.newPage();
      watch(page, wrong);
      await logIn(page);
      for (const name of PAGES) {
        await page.goto(`${url}/${name}`);
        if (name === "performance") await page.waitForFunction(() => document.querySelectorAll(".chart canvas").length === 4);
        const where = `${name}, ${size}, ${colorScheme}`;
        await accessible(page, where);
        await fits(page, where);
        await page.screenshot({ path: path.join(folder, `${name}-${size}-${colorScheme}.png`) });
      }
      await context.close();
    }
  }
};

const act = async (page) => {
  await page.goto(url + "/checks");
  await page.getByRole("link", { name: "Start…" }).first().click();
  await page.getByRole("heading", { level: 1, name: "Start a check (lfsck)" }).waitFor();
  await accessible(page, "confirmation");
  await page.getByLabel("Only look, mend nothing").check();
  await page.getByRole("button", { name: "Yes: Start a check (lfsck)" }).click();
  await page.getByText("Done:").waitFor();
  await page.getByRole("link", { name: "Back to the actions" }).click();
  const line = page.getByRole("row").filter({ hasText: "lfsck-start" }).first();
  assert((await line.innerText()).includes("dry_run=on"), "it is written down");
  // What is wrong is said where it was typed.
  await page.goto(url + "/act/deactivate");
  await page.getByLabel("Object target").fill("nonsense");
  await page.getByRole("button", { name: /^Yes/ }).click();
  assert((await page.getByRole("alert").innerText()).includes("no such target"));
  await accessible(page, "refusal");
};

const keyboard = async (page) => {
  await page.goto(url + "/overview");
  await page.keyboard.press("Tab");
  assert.strictEqual(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.strictEqual(await page.evaluate(() => document.activeElement.id), "view");
};

// Curves of one target.
const curves = async (page) => {
  // They are there after the second sample.
  const end = Date.now() + PATIENCE;
  do {
    await page.goto(url + "/performance");
    await page.waitForTimeout(500);
  } while (await page.locator("#target option").count() < 4 && Date.now() < end);
  const asked = page.waitForRequest((r) => /history\?target=.+-OST0001$/.test(r.url()));
  await page.getByLabel("Curves of").selectOption({ index: 3 });
  await asked;
};

// An OST dies and comes back, and the page that is open says so by itself.
const failover = async (page) => {
  await page.goto(url + "/overview");
  await page.getByText("well", { exact: true }).first().waitFor({ timeout: PATIENCE });
  console.log("open");
  await page.getByText("does not answer").first().waitFor({ timeout: PATIENCE });
  await page.screenshot({ path: path.join(folder, "overview-dead.png") });
  await accessible(page, "overview of a dead OST");
  console.log("dead");
  await page.getByText("well", { exact: true }).first().waitFor({ timeout: 2 * PATIENCE });
};

const withoutScripts = async (browser) => {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await logIn(page);
  await page.getByRole("link", { name: "Capacity" }).click();
  await page.getByRole("heading", { level: 1, name: "Capacity" }).waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("heading", { level: 1, name: "Nacre: log in" }).waitFor();
  await context.close();
};

(async () => {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  const wrong = [];
  try {
    const page = await browser.newPage();
    watch(page, wrong);
    await page.goto(url + "/login");
    await accessible(page, "login");
    await page.getByLabel("Token").fill("nacre_guess");
    // The browser itself tells of a refusal on its console.
    page.removeAllListeners("console");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").getByText("There is no such token.").waitFor();
    await logIn(page);
    await keyboard(page);
    await act(page);
    await curves(page);
    await failover(page);
    await shoot(browser, wrong);
    await withoutScripts(browser);
    assert.deepStrictEqual(wrong, [], "pages complain");
  } finally {
    await browser.close();
  }
  console.log("passed");
})().catch((e) => { console.error(e); process.exit(1); });
