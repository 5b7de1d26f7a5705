/**
 * Defects outside of any request (row R44 of the threat table): the gateway logs and counts them, requests in flight
 * and new ones get their answers, and the process still stops with exit code 0 when it is asked to.
 */
import assert from "node:assert/strict";
import { get, type IncomingMessage, type ServerResponse } from "node:http";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { eventually } from "../support/eventually.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { backendFor } from "../support/scenario.ts";

const defects: [name: string, code: string, logged: RegExp][] = [
  [
    "an exception that nothing catches",
    'setImmediate(() => { throw new Error("injected by the test") })',
    /error app: unexpected error source=process error="Error: injected by the test\\n {4}at /,
  ],
  [
    "a rejection that nothing handles",
    'void Promise.reject(new Error("injected by the test"))',
    /error app: unexpected error source=process error="Error: injected by the test\\n {4}at /,
  ],
  [
    "a thrown value that is no error",
    'setImmediate(() => { throw "the words of a client" })',
    /error app: unexpected error source=process error="thrown value of type string"/,
  ],
];
for (const [name, code, logged] of defects) {
  test(`${name} is logged and counted, requests get their answers, and the exit code stays 0 [R44]`, async (t) => {
    const held: ServerResponse[] = [];
    const backend = await backendFor(t, (req, res) =>
      req.url === "/held" ? void held.push(res) : void res.end("new"),
    );
    const yaml = `config: { adminAddr: "127.0.0.1:0" }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`;
    const defect = `data:text/javascript,${encodeURIComponent(`process.on("SIGWINCH", () => { ${code}; });`)}`;
    const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
      nodeFlags: [`--import=${defect}`],
    });
    const [port, adminUrl] = [await gateway.port(), await gateway.adminUrl()];
    // A defect while the gateway starts ends the start; this one comes later.
    await gateway.logged("started");
    const answer = ask(port, "/held");
    await eventually("the request is at the backend", () => held.length === 1);
    gateway.child.kill("SIGWINCH");
    assert.match(await gateway.logged("unexpected error"), logged);
    assert.equal(await textOf(await ask(port, "/new")), "new");
    held[0]?.end("whole");
    assert.equal(await textOf(await answer), "whole");
    const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
    assert.match(metrics, /^gateway_unexpected_errors_total\{source="process"\} 1$/m);

    gateway.child.kill("SIGTERM");
    const exit = await gateway.exited;
    assert.deepEqual([exit.code, exit.signal, exit.stderr], [0, null, ""]);
    assert.doesNotMatch(exit.stdout, /the words of a client/);
  });
}

test("a defect before the gateway has started is written to standard error, and the exit code is 1 [R44]", async (t) => {
  const yaml = "config: { adminAddr: off }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: []\n";
  // Reading the configuration's file is a step of every start, before anything listens.
  const defect =
    'import fs from "node:fs"; import { syncBuiltinESMExports } from "node:module"; const read = fs.readFileSync;' +
    'fs.readFileSync = (...args) => { if (String(args[0]).endsWith(".yaml")) throw new TypeError("injected"); return read(...args); };' +
    "syncBuiltinESMExports();";
  const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
    nodeFlags: [`--import=data:text/javascript,${encodeURIComponent(defect)}`],
  });
  const exit = await gateway.exited;
  assert.equal(exit.code, 1);
  assert.match(exit.stderr, /injected/);
});

function ask(port: number, path: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) =>
    get({ port, path, host: "127.0.0.1", agent: false }, resolve).once("error", reject),
  );
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}
