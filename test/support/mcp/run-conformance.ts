/**
 * Prints the scores of the conformance suite: the fixture asked directly, and through the gateway, for both eras
 * and both transports, and with servers of one era only (`npm run conformance`).
 */
import { startGateway } from "../gateway.ts";
import { type Revision, runSuite, startHttpFixture, suiteNode } from "./conformance.ts";
import { stdioFixture } from "./fixture.ts";

const REVISIONS: readonly Revision[] = ["2025-11-25", "2026-07-28"];

const node = suiteNode();
if (node === undefined) {
  console.error("The suite needs Node 22 or newer: run this with one, or install node-linux-<arch>.");
  process.exit(1);
}

let isBelow = false;
console.log(`${"".padEnd(44)}${REVISIONS.map((revision) => revision.padStart(12)).join("")}`);
await row("fixture over HTTP, asked directly", [], async (use) => {
  const remote = await startHttpFixture();
  await use(remote.url);
  await remote.close();
});
for (const [title, flags] of [
  ["", []],
  [", modern only", ["--modern-only"]],
  [", legacy only", ["--legacy-only"]],
] as const) {
  await row(`gateway, stdio${title}`, flags, (use) =>
    throughGateway({ stdio: stdioFixture("conformance-server", "stdio", ...flags) }, use),
  );
  await row(`gateway, HTTP${title}`, flags, async (use) => {
    const remote = await startHttpFixture(...flags);
    await throughGateway({ mcp: { url: remote.url } }, use);
    await remote.close();
  });
}
process.exit(isBelow ? 1 : 0);

async function row(
  title: string,
  flags: readonly string[],
  serve: (use: (url: string) => Promise<void>) => Promise<void>,
): Promise<void> {
  let line = title.padEnd(44);
  const notes: string[] = [];
  for (const revision of REVISIONS) {
    await serve(async (url) => {
      const { scored, passed, failures } = await runSuite(node as string, url, revision);
      line += `${passed} of ${scored}`.padStart(12);
      notes.push(...failures.map((failure) => `    ${revision} ${failure}`));
      // A server of one era is converted; only the native pairs must be perfect.
      if (title.startsWith("gateway") && flags.length === 0 && passed < scored) isBelow = true;
    });
  }
  console.log([line, ...notes].join("\n"));
}

async function throughGateway(target: object, use: (url: string) => Promise<void>): Promise<void> {
  const gateway = await startGateway(
    JSON.stringify({
      config: { logging: { level: "warn,access=off" } },
      gateways: { default: { port: 0, address: "127.0.0.1" } },
      routes: [{ backends: [{ mcp: { targets: [{ name: "fixture", ...target }] } }] }],
    }),
  );
  await use(`${gateway.url()}/mcp`);
  await gateway.close();
}
