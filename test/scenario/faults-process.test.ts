/**
 * Defects outside of any request (row R44 of the threat table): they are said, what is in flight ends, and the exit
 * code asks for a new start.
 */
import assert from "node:assert/strict";
import { get, type IncomingMessage, type ServerResponse } from "node:http";
import { test } from "node:test";
import { configFile } from "../support/config-file.ts";
import { startGatewayProcess } from "../support/gateway-process.ts";
import { backendFor, eventually } from "../support/scenario.ts";

const defects: [name: string, code: string, said: RegExp][] = [
  [
    "an exception that nobody catches",
    'setImmediate(() => { throw new Error("injected") })',
    /^uncaught exception: Error: injected\n {4}at /,
  ],
  [
    "a rejection that nobody handles",
    'void Promise.reject(new Error("injected"))',
    /^unhandled rejection: Error: injected\n {4}at /,
  ],
  ["a thrown thing that is no error", 'setImmediate(() => { throw "a word" })', /^uncaught exception: a word\n$/],
];
for (const [name, code, said] of defects) {
  test(`${name} is said, the request in flight gets its answer, nothing new is taken, and the exit code is 1 [R44]`, async (t) => {
    const held: ServerResponse[] = [];
    const backend = await backendFor(t, (_req, res) => void held.push(res));
    const yaml = `config: { adminAddr: off }\ngateways: { default: { port: 0, address: 127.0.0.1 } }\nroutes: [{ backends: [{ host: "${backend.host}" }] }]\n`;
    const defect = `data:text/javascript,${encodeURIComponent(`process.on("SIGUSR2", () => { ${code}; });`)}`;
    const gateway = startGatewayProcess(t, ["-f", configFile(t, yaml)], {
      compiled: true,
      nodeFlags: [`--import=${defect}`],
    });
    const port = await gateway.port();
    const answer = ask(port);
    await eventually("it is at the backend", () => held.length === 1);
    gateway.child.kill("SIGUSR2");
    await gateway.logged("draining");
    await assert.rejects(ask(port), "nothing new is accepted");
    held[0]?.end("whole");
    assert.equal(await textOf(await answer), "whole");
    const exit = await gateway.exited;
    assert.equal(exit.code, 1);
    assert.match(exit.stderr, said);
  });
}

function ask(port: number): Promise<IncomingMessage> {
  return new Promise((resolve, reject) =>
    get({ port, host: "127.0.0.1", agent: false }, resolve).once("error", reject),
  );
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of response) text += String(part);
  return text;
}
