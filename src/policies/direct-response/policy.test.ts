import assert from "node:assert/strict";
import { test } from "node:test";
import { anExchange, testEnv } from "../../../test/support/exchange.ts";
import type { Reply } from "../../core/reply.ts";
import { directResponse } from "./policy.ts";

function answer(config: object): Reply {
  return directResponse.compile(directResponse.schema.parse(config), testEnv).shape?.head?.(anExchange()) as Reply;
}

test("returns the configured status, body and headers; text/plain by default", () => {
  const plain = answer({ body: "hello" });
  assert.equal(plain.status, 200);
  assert.equal(plain.body?.toString(), "hello");
  assert.equal(plain.headers.get("content-type"), "text/plain; charset=utf-8");
  const json = answer({ status: 418, body: "{}", headers: { "Content-Type": "application/json", "x-a": "1" } });
  assert.equal(json.status, 418);
  assert.deepEqual({ ...json.headers.toObject() }, { "content-type": "application/json", "x-a": "1" });
});

test("every response has its own headers, because later hooks change them", () => {
  const hooks = directResponse.compile(directResponse.schema.parse({ headers: { "x-a": "1" } }), testEnv);
  const [first, second] = [1, 2].map(() => hooks.shape?.head?.(anExchange()) as Reply);
  first?.headers.set("x-a", "changed");
  assert.equal(second?.headers.get("x-a"), "1");
});

function conditional(entries: object[], headers: Record<string, string> = {}): Reply | undefined {
  const config = directResponse.schema.parse({ conditional: entries });
  return directResponse.compile(config, testEnv).shape?.head?.(anExchange({ path: "/a", headers })) as
    | Reply
    | undefined;
}

const FAULT = { condition: 'request.headers["x-fault"] == "1"', status: 503, body: "injected" };

test("the first entry whose condition is met responds; if none is met or it fails, the request passes", () => {
  assert.equal(conditional([FAULT], { "x-fault": "1" })?.status, 503);
  assert.equal(conditional([FAULT], { "x-fault": "2" }), undefined);
  assert.equal(conditional([{ condition: "jwt.sub == 'a'" }, FAULT], { "x-fault": "1" })?.status, 503);
  assert.equal(conditional([{ condition: "jwt.sub == 'a'" }]), undefined);
  assert.equal(conditional([FAULT, { status: 418 }])?.status, 418);
});

test("a body can be an expression; if it fails, the body is empty", () => {
  const shown = answer({ bodyExpression: '"path " + request.path' });
  assert.equal(shown.body?.toString(), "path /");
  assert.equal(shown.headers.get("content-type"), "text/plain; charset=utf-8");
  assert.equal(answer({ bodyExpression: "{'path': request.path}" }).body?.toString(), '{"path":"/"}');
  assert.equal(answer({ bodyExpression: "jwt.sub" }).body?.toString(), "");
});

for (const config of [
  { conditional: [] },
  { conditional: [{ status: 503 }, { condition: "true" }] },
  { conditional: [{ condition: "true" }], status: 201 },
  { conditional: [{ condition: "true" }], body: "a" },
  { conditional: [{ condition: "nonsense(" }] },
  { conditional: [{ body: "a", bodyExpression: "'b'" }] },
  { body: "a", bodyExpression: "'b'" },
  { status: 100 },
  { status: 600 },
  { status: "200" },
  { headers: { "x y": "1" } },
  { headers: { x: "a\nb" } },
  { headers: { "content-length": "5" } },
  { body: 1 },
]) {
  test(`rejects the config ${JSON.stringify(config)}`, () => {
    assert.equal(directResponse.schema.safeParse(config).success, false);
  });
}
