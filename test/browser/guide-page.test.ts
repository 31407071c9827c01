/** The page of the guide (REMOTE): two tabs that write into each other's memory. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Browser, Site, Tab, missingBrowser } from '../support/browser.js';
import { root } from '../support/paths.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);

test('two tabs with the page of the guide write into the memory of each other', async () => {
  const guide = readFileSync(new URL('host/guide/REMOTE.md', root), 'utf8');
  const [, page] = /```html\n(<!-- tabs\.html -->[^]*?)```/.exec(guide) ?? [];
  assert.ok(page);
  const name = `build/guide-page-${process.pid}.html`;
  const file = fileURLToPath(new URL(name, root));
  writeFileSync(file, page.replace('./node_modules/verbena/build/', '/build/'));
  const site = await Site.open();
  const browser = await Browser.launch();
  try {
    const tabs = await Promise.all([browser.context.newPage(), browser.context.newPage()]);
    const errors = tabs.map((tab) => new Tab(tab).errors);
    for (const tab of tabs) await tab.goto(site.url(`/${name}`));
    for (const tab of tabs) {
      await tab.waitForFunction(
        `document.querySelector('p').textContent.includes('"written by the other tab"')`,
      );
    }
    // The favicon that browsers ask for is not there.
    assert.equal(
      errors.flat().filter((text) => !/404/.test(text)),
      [],
    );
  } finally {
    await browser.close();
    await site.close();
    rmSync(file);
  }
});

test.run();
