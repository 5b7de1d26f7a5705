/**
 * What is printed at the start works as it is printed: each command is sent as it stands, for the embedded default and
 * for configurations of other shapes.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { startApp } from "../../src/app/app.ts";
import { firstSteps } from "../../src/app/first-steps.ts";
import { systemClock } from "../../src/base/clock.ts";
import { defaultConfig } from "../../src/config/load/default-config.ts";
import { exampleCommand } from "../../ui/src/data/example-command.ts";
import { fixturePath } from "../support/mcp/fixture.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const DEMO = join(fixturePath("x"), "../../../../src/demo/mcp-server.js");

async function started(t: TestContext, text: string) {
  const lines: string[] = [];
  const app = await startApp({
    sources: { text },
    environment: { PORT: "0", LLM_PORT: "0", ADMIN_PORT: "0" },
    clock: systemClock,
    output: { write: (line) => void lines.push(line), dropped: () => 0, flushSync: () => undefined },
    version: "test",
    readStdin: () => "",
    defaultAdminAddr: "off",
  });
  t.after(async () => {
    void app.stop();
    await app.stop();
  });
  return { app, lines };
}

/** `curl … url -H '…' -d '…'` over one or two lines. */
function commandsIn(text: string): { url: string; init: RequestInit }[] {
  return [...text.replaceAll(/\\\n\s*/g, "").matchAll(/^ *curl (.*)$/gm)].map(([, command = ""]) => {
    const headers = [...command.matchAll(/-H '([^:']+): ([^']*)'/g)].map(([, name = "", value = ""]) => [name, value]);
    const body = /-d '(.*)'$/.exec(command)?.[1];
    const url = /https?:\/\/\S+/.exec(command)?.[0] ?? "";
    return { url, init: { headers: headers as [string, string][], ...(body ? { method: "POST", body } : {}) } };
  });
}

async function statuses(text: string): Promise<number[]> {
  const answers: number[] = [];
  for (const { url, init } of commandsIn(text)) {
    const answer = await fetch(url, init);
    await answer.body?.cancel();
    answers.push(answer.status);
  }
  return answers;
}

test("the embedded default's commands are answered", async (t) => {
  const { app } = await started(t, defaultConfig({ command: process.execPath, args: [DEMO] }));
  const text = firstSteps(app, true);
  assert.match(text, /MCP +http:\/\/127\.0\.0\.1:\d+\/mcp\n/);
  assert.match(text, /LLM +http:\/\/127\.0\.0\.1:\d+\/v1\n/);
  assert.deepEqual(await statuses(text), [200, 200]);
});

test("so are those of a configuration of one's own: other paths, plain backends, named models [S1-8]", async (t) => {
  const backend = await backendFor(t);
  const { app } = await started(
    t,
    `gateways: { default: { port: 0, address: 127.0.0.1 } }
mcp: { gateway: default, targets: [{ name: a, stdio: { cmd: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(DEMO)}] } }] }
llm: { gateway: default, models: [{ name: "x/*", provider: demo }, { name: tiny, provider: demo }] }
routes:
  - matches: [{ path: { regex: "/r.*" } }, { path: { pathPrefix: /web } }]
    backends: [{ host: "${backend.host}" }]
  - hostnames: [other.example.com]
    backends: [{ host: "${backend.host}" }]
`,
  );
  const text = firstSteps(app, false);
  assert.deepEqual([...app.ports().keys()], ["default"]);
  assert.match(text, /"model":"tiny"/);
  assert.match(text, /HTTP http:\/\/127\.0\.0\.1:\d+\/web\n +curl -i /);
  assert.doesNotMatch(text, /other\.example\.com|UI/);
  assert.deepEqual(await statuses(text), [200, 200, 200]);
});

test("where a token is needed the command has a place for it", async (t) => {
  const { app } = await started(
    t,
    `gateways: { default: { port: 0 } }
routes: [{ policies: { apiKey: { keys: [{ key: k }] }, directResponse: { body: x } } }]
`,
  );
  assert.match(firstSteps(app, false), /curl -i http:\/\/localhost:\d+\/ -H "authorization: Bearer \$TOKEN"/);
});

test("without a terminal the log says it: the address as it is bound, and the paths", async (t) => {
  const { lines } = await started(
    t,
    `gateways: { default: { port: 0 }, inner: { port: 0, address: 127.0.0.1 } }
mcp: { gateway: default, targets: [{ name: a, stdio: { cmd: cat } }] }
routes: [{ gateways: inner, matches: [{ path: { pathPrefix: /a } }, { path: { regex: /b.* } }] }]
`,
  );
  const listening = lines.filter((line) => line.includes("listening"));
  assert.match(listening[0] ?? "", /gateway=default url=http:\/\/0\.0\.0\.0:\d+ paths=\["\/mcp","\/mcp\/","\/sse"\]/);
  assert.match(listening[1] ?? "", /gateway=inner url=http:\/\/127\.0\.0\.1:\d+ paths=\["\/a\/\*","\*"\]/);
});

const DEMO_SERVER = `mcp: { targets: [{ name: a, stdio: { cmd: ${JSON.stringify(process.execPath)}, args: [${JSON.stringify(DEMO)}] } }] }`;
const shapes: [name: string, route: (host: string) => string][] = [
  ["MCP servers", () => `{ backends: [{ ${DEMO_SERVER} }] }`],
  [
    "a model below a path",
    () => "{ matches: [{ path: { pathPrefix: /llm } }], backends: [{ ai: { provider: { demo: {} } } }] }",
  ],
  ["a plain backend", (host) => `{ matches: [{ path: { exact: /only } }], backends: [{ host: "${host}" }] }`],
];
for (const [name, route] of shapes) {
  test(`the command that the web UI shows while nothing has come is answered by ${name}`, async (t) => {
    const backend = await backendFor(t);
    const gateway = await gatewayFor(t, `gateways: { default: { port: 0 } }\nroutes: [${route(backend.host)}]\n`);
    const dump = await (await fetch(`${gateway.adminUrl}/config_dump`)).json();
    assert.deepEqual(await statuses(exampleCommand(dump) ?? "no command"), [200]);
  });
}
