import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { MessagePool } from "../../base/memory-budget.ts";
import { nextTurn } from "../../base/sliced-work.ts";
import type { McpGuardrails, McpVerdict } from "../../core/mcp-guardrails.ts";
import { answerCall, type Call, type CallHandle, type CallTarget, intercept, ownCall } from "./call.ts";
import { guardrailInterceptor } from "./guarded-call.ts";
import { asResult, type ClientRequest, parseClientMessage } from "./json-rpc.ts";

test("a result fails if the results that wait for mcpGuardrails need too much memory", async () => {
  const pool = new MessagePool(1_000, fakeClock());
  const target: CallTarget = { name: "files", messages: pool.server(), config: {} };
  const verdicts: ((verdict: McpVerdict) => void)[] = [];
  const guardrails: McpGuardrails = {
    checksRequest: () => false,
    checksResponse: () => true,
    checkRequest: () => assert.fail("the request is not checked"),
    checkResponse: () => new Promise((resolve) => void verdicts.push(resolve)),
  };
  const outcomes: string[] = [];
  const call = (): void => {
    const request = parseClientMessage(
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}',
    ) as ClientRequest;
    const own = ownCall(request, {
      guardrails,
      answered: () => void outcomes.push("answered"),
      failed: ({ message, detail }) => void outcomes.push(`${message}: ${detail}`),
    });
    const send = (guarded: Call): CallHandle =>
      answerCall(guarded, asResult(JSON.stringify({ content: [{ type: "text", text: "x".repeat(200) }] })));
    intercept(own, [guardrailInterceptor], send, [target]);
  };
  call();
  call();
  assert.equal(verdicts.length, 1);
  assert.deepEqual(outcomes, [
    "the MCP guardrail service is not available: there is no memory for another result that waits for it",
  ]);
  verdicts[0]?.({ body: undefined });
  await nextTurn();
  assert.equal(pool.usedBytes, 0);
  call();
  verdicts[1]?.({ rejection: { code: 1, message: "no", detail: "no", isFailure: false } });
  await nextTurn();
  assert.deepEqual([outcomes.slice(1), pool.usedBytes], [["answered", "no: no"], 0]);
});
