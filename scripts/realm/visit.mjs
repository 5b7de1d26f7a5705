/**
 * The browser of `npm run test:realm`: `node visit.mjs <URL>` logs in as the user of the guide and calls the client's
 * redirect URI.
 */
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { REALM_BROWSER_MODULE = "", REALM_USER = "", REALM_PASSWORD = "", REALM_SCRATCH = tmpdir() } = process.env;
const digest = createHash("sha256")
  .update(process.argv[2] ?? "")
  .digest("hex");
try {
  writeFileSync(join(REALM_SCRATCH, `visited-${digest}`), "", { flag: "wx" });
} catch {
  process.exit(0);
}
const { openBrowser } = await import(pathToFileURL(REALM_BROWSER_MODULE).href);
const start = new URL(process.argv[2] ?? "");
const redirectUri = start.searchParams.get("redirect_uri") ?? "";
const browser = openBrowser({ username: REALM_USER, password: REALM_PASSWORD });
const callback = await browser.visit(start, redirectUri);
const answer = await fetch(callback);
await answer.body?.cancel();
