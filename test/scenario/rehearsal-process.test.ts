/**
 * The process of rehearsals: it steps back behind those that serve, knows nothing of the gateway's variables, and neither
 * outlives the gateway nor takes it along.
 */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/eventually.ts";
import { type GatewayProcess, startGatewayProcess } from "../support/gateway-process.ts";
import { childrenOf, isAlive } from "../support/mcp/processes.ts";
import { folderFor } from "../support/mcp/resume.ts";

const skip = process.platform === "linux" ? false : "reads /proc";
const YAML = `config: { adminAddr: "127.0.0.1:0" }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes: [{ policies: { directResponse: { status: 200, body: ok } } }]
`;

async function startedFor(t: TestContext): Promise<{ gateway: GatewayProcess; rehearse(): Promise<Response> }> {
  const file = join(folderFor(t), "config.yaml");
  writeFileSync(file, YAML);
  const gateway = startGatewayProcess(t, ["-f", file], { env: { SECRET_OF_THE_GATEWAY: "1" } });
  const url = `http://127.0.0.1:${await gateway.port()}/`;
  const adminUrl = await gateway.adminUrl();
  for (let i = 0; i < 5; i++) await (await fetch(url)).text();
  return { gateway, rehearse: () => fetch(`${adminUrl}/debug/rehearse`, { method: "POST", body: YAML }) };
}

function rehearsalProcesses({ child }: GatewayProcess): number[] {
  return childrenOf(child.pid ?? 0, "rehearsal-process");
}

/** As the system has it: 20 is the usual one, higher is less. */
function priorityOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[15]);
}

test("it has a lower priority and no variable of the gateway, is used again, and ends with the gateway", {
  skip,
}, async (t) => {
  const { gateway, rehearse } = await startedFor(t);
  for (let i = 0; i < 2; i++) {
    const answer = await rehearse();
    assert.equal(answer.status, 200, await answer.clone().text());
    assert.equal(((await answer.json()) as { requests: number }).requests, 5);
  }
  const [pid = 0, ...others] = rehearsalProcesses(gateway);
  assert.deepEqual(others, []);
  assert.ok(priorityOf(pid) > priorityOf(gateway.child.pid ?? 0));
  assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, "latin1"), /SECRET_OF_THE_GATEWAY/);
  gateway.child.kill("SIGKILL");
  await gateway.exited;
  await eventually("it has ended too", () => !isAlive(pid));
});

test("one that is ended at work is an error with its reason, and the next rehearsal has another", {
  skip,
}, async (t) => {
  const { gateway, rehearse } = await startedFor(t);
  await (await rehearse()).text();
  const [pid = 0] = rehearsalProcesses(gateway);
  // It holds still, so that the next rehearsal finds it and waits for it.
  process.kill(pid, "SIGSTOP");
  const waiting = rehearse();
  await eventually("the rehearsal runs", async () => (await rehearse()).status === 409);
  process.kill(pid, "SIGKILL");
  const answer = await waiting;
  assert.deepEqual([answer.status, await answer.text()], [500, "the rehearsal process ended with SIGKILL\n"]);
  assert.equal((await rehearse()).status, 200);
  assert.deepEqual([rehearsalProcesses(gateway).length, rehearsalProcesses(gateway).includes(pid)], [1, false]);
});
