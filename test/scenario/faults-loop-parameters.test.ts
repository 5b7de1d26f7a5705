/**
 * The largest accepted value in every parameter that a client controls: headers, paths, queries, credentials, form fields,
 * and members of MCP and LLM bodies. However the gateway answers, no turn of its loop uses more than 50 ms of CPU, so no
 * client can stall the others. The gateway has its own process, so that only its own work counts.
 */
import assert from "node:assert/strict";
import { request } from "node:http";
import { after, before, type TestContext, test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { type GatewayProcess, startGatewayProcess } from "../support/gateway-process.ts";
import { oddTarget } from "../support/mcp/gateway-config.ts";
import { turnsOf, WATCHED_TURNS } from "../support/process-turns.ts";

const MAX_TURN_MS = 50;

const HTPASSWD = `
apr:$apr1$saltsalt$LrttParrLPdxvgutaSXWJ0
bob:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm
sha:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=
`;
const CONFIG = {
  config: { adminAddr: "off", logging: { level: "info,access=off" } },
  gateways: { default: { port: 0, address: "127.0.0.1" } },
  routes: [
    {
      name: "passwords",
      matches: [{ path: { pathPrefix: "/passwords" } }],
      policies: { basicAuth: { htpasswd: HTPASSWD } },
      backends: [{ host: "127.0.0.1:9" }],
    },
    {
      name: "search",
      matches: [{ path: { exact: "/search" } }],
      backends: [{ mcp: { toolMode: "search", targets: [oddTarget()] } }],
    },
  ],
};

interface Request {
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

let gateway: GatewayProcess;
let port: number;
let watch: () => Promise<number>;
const cleanups: (() => void)[] = [];
before(async () => {
  const t = { after: (cleanup: () => void) => void cleanups.push(cleanup) } as unknown as TestContext;
  gateway = startGatewayProcess(t, ["-f", configFile(t, JSON.stringify(CONFIG))], {
    compiled: true,
    nodeFlags: WATCHED_TURNS,
  });
  port = await gateway.port();
  watch = turnsOf(gateway);
});
after(() => {
  for (const cleanup of cleanups) cleanup();
});

/** The shortest of some rounds: work that blocks does so in each one; compiler and garbage collector do not. */
async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 4 && best >= MAX_TURN_MS; round++) {
    await watch();
    await work();
    best = Math.min(best, await watch());
  }
  return best;
}

function send({ method = "GET", path, headers = {}, body }: Request): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ port, host: "127.0.0.1", path, method, headers, agent: false }, (res) => {
      let text = "";
      res.setEncoding("utf8").on("data", (chunk: string) => {
        if (text.length < 10_000) text += chunk;
      });
      res.on("error", reject);
      res.on("end", () => resolve({ status: res.statusCode ?? 0, headers: res.headers, text }));
    });
    outgoing.once("error", reject);
    outgoing.end(body);
  });
}

const basic = (user: string, password: string): string =>
  `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}`;

for (const user of ["apr", "bob", "sha", "nobody"])
  for (const length of [8, 1_024, 11_000])
    test(`100 passwords of ${length} bytes for ${user} do not hold the loop [R70] [R71]`, async () => {
      const statuses = new Set<number>();
      const longestMs = await longestTurnMs(async () => {
        const checks = Array.from({ length: 100 }, (_, i) =>
          send({ path: "/passwords", headers: { authorization: basic(user, `${i}`.padEnd(length, "x")) } }),
        );
        for (const { status } of await Promise.all(checks)) statuses.add(status);
      });
      assert.ok(longestMs < MAX_TURN_MS, `${longestMs} ms`);
      assert.deepEqual(
        [...statuses].filter((status) => status !== 401 && status !== 503),
        [],
      );
    });
