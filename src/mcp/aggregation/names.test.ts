import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { find } from "../../json/json-text.ts";
import { asClientRequest, asResult, asServerMessage } from "../protocol/json-rpc.ts";
import { readListContent } from "../protocol/list-content.ts";
import { createNames, renamedItem, renamedNotification, renamedRequest, renamedResult } from "./names.ts";

const names = createNames(["files", "web"], "conditional");

const pairs = [
  { kind: "tool", inside: "read", outside: "files_read" },
  { kind: "tool", inside: "a_b_c", outside: "files_a_b_c" },
  { kind: "prompt", inside: "p", outside: "files_p" },
  { kind: "resource", inside: "file:///a", outside: "files+file:///a" },
  { kind: "resource", inside: "ui://panel/x", outside: "ui://files+panel/x" },
] as const;
for (const { kind, inside, outside } of pairs) {
  test(`the ${kind} ${inside} is ${outside} to clients, and back`, () => {
    assert.equal(names.outward(kind, "files", inside), outside);
    assert.deepEqual(names.inward(kind, outside), { target: "files", name: inside });
  });
}

for (const name of ["read", "other_read", "files", "_read", ""]) {
  test(`the tool ${JSON.stringify(name)} belongs to no target`, () => {
    assert.equal(names.inward("tool", name), undefined);
  });
}

const modes = [
  { targets: ["a"], mode: "conditional", isPrefixed: false },
  { targets: ["a", "b"], mode: "conditional", isPrefixed: true },
  { targets: ["a"], mode: "always", isPrefixed: true },
  { targets: ["a", "b"], mode: "never", isPrefixed: false },
] as const;
for (const { targets, mode, isPrefixed } of modes) {
  test(`with ${targets.length} targets and the mode ${mode}, names ${isPrefixed ? "carry" : "do not carry"} their target`, () => {
    assert.equal(createNames(targets, mode).isPrefixed, isPrefixed);
  });
}

test("a request gets the target's own name, and nothing else of it changes", () => {
  const request = asClientRequest("tools/call", '{"name":"files_read","arguments":{"n":9007199254740993},"_meta":{}}');
  const renamed = renamedRequest(request, "read");
  assert.equal(renamed.text, request.text.replace("files_read", "read"));
  assert.equal(renamed.text.slice(renamed.idStart, renamed.idEnd), "0");
  assert.equal(renamed.params.name, "read");
});

test("a completion names its prompt or resource deeper", () => {
  const request = asClientRequest(
    "completion/complete",
    '{"ref":{"type":"ref/resource","uri":"files+x://{a}"},"argument":{"name":"a","value":""}}',
  );
  assert.match(renamedRequest(request, "x://{a}").text, /"uri":"x:\/\/\{a\}"/);
});

test("an item of a list gets the client's name, and big numbers in its schema survive", () => {
  const message = asResult(
    '{"tools":[{"inputSchema":{"maximum":9223372036854775807},"name":"read","_meta":{"ui":{"resourceUri":"ui://panel"},"ui/resourceUri":"ui://old"}}]}',
  );
  const { items } = finish(readListContent(message, { member: "tools", key: "name" }));
  assert.ok(items?.[0]);
  assert.equal(
    renamedItem(message.text, items[0], "tools/list", names, "files"),
    '{"inputSchema":{"maximum":9223372036854775807},"name":"files_read","_meta":{"ui":{"resourceUri":"ui://files+panel"},"ui/resourceUri":"ui://files+old"}}',
  );
});

test("links and embedded resources in results lead back to their target", () => {
  const call = asServerMessage(
    '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"resource_link","uri":"x://1"},{"type":"resource","resource":{"uri":"x://2","text":"t"}},{"type":"text","text":"x://3"}]}}',
  );
  assert.deepEqual(uris(finish(renamedResult(call, "tools/call", names, "web")).text), ["web+x://1", "web+x://2"]);
  const read = asServerMessage('{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"x://1","text":"x"}]}}');
  assert.deepEqual(uris(finish(renamedResult(read, "resources/read", names, "web")).text), ["web+x://1"]);
  const prompt = asServerMessage(
    '{"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x://9"}}}]}}',
  );
  assert.deepEqual(uris(finish(renamedResult(prompt, "prompts/get", names, "web")).text), ["web+x://9"]);
});

test("a notification about a resource names it as the client does", () => {
  const message = asServerMessage(
    '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://1"}}',
  );
  const text = renamedNotification(message, names, "web");
  const span = find(text, 0, "params", "uri");
  assert.equal(text.slice(span?.start, span?.end), '"web+x://1"');
});

function uris(text: string): string[] {
  return [...text.matchAll(/"uri":"([^"]*)"/g)].map((match) => match[1] as string);
}
