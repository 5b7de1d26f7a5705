import assert from "node:assert/strict";
import { test } from "node:test";
import { finish } from "../../base/sliced-work.ts";
import { filterList, listProblem } from "./access.ts";
import { asClientRequest, asResult } from "./json-rpc.ts";
import { readListContent } from "./list-content.ts";

const TOOLS = { member: "tools", key: "name" };

test("the check of a list and its filter read the text once", () => {
  const message = asResult(
    '{"nextCursor":"n","tools":[{"name":"a","x":1}, {"x":[{"name":"c"}],"name":"b\\u0062"}],"_meta":{}}',
  );
  const content = finish(readListContent(message, TOOLS));
  assert.equal(finish(listProblem(asClientRequest("tools/list", "{}"), message, "files")), undefined);
  assert.equal(finish(readListContent(message, TOOLS)), content);
  const names: string[] = [];
  const filtered = finish(
    filterList(message, "tools/list", (name) => {
      names.push(name);
      return name !== "a";
    }),
  );
  assert.deepEqual(names, ["a", "bb"]);
  assert.deepEqual(JSON.parse(filtered.text).result, { tools: [{ x: [{ name: "c" }], name: "bb" }], nextCursor: "n" });
});

test("the first invalid item is reported", () => {
  const problemOf = (result: string) =>
    finish(listProblem(asClientRequest("tools/list", "{}"), asResult(result), "files"))?.message;
  assert.match(
    problemOf('{"tools":[{"name":"a"},{"name":1},{"Name":"b","name":"b"}]}') ?? "",
    /"name" is not a string$/,
  );
  assert.match(problemOf('{"tools":[{"name":"a","Name":"b"},{"name":1}]}') ?? "", /"Name" must be written "name"$/);
  for (const item of ["1", '"name"', "[]", "{}", "null"])
    assert.match(problemOf(`{"tools":[${item}]}`) ?? "", /"name" is not a string$/);
  for (const result of ["{}", '{"tools":{}}', '{"tools":"["}', '{"x":{"tools":[]}}'])
    assert.match(problemOf(result) ?? "", /no list of tools$/);
  assert.equal(problemOf('{"tools":[]}'), undefined);
});

test("a list and its items have at most 1,000 members", () => {
  const problemOf = (result: string) =>
    finish(listProblem(asClientRequest("tools/list", "{}"), asResult(result), "files"))?.message;
  const members = (n: number): string => Array.from({ length: n }, (_, i) => `"x${i}":1`).join(",");
  assert.equal(problemOf(`{"tools":[{"name":"a",${members(999)}}],${members(999)}}`), undefined);
  assert.match(problemOf(`{"tools":[{"name":"a",${members(1_000)}}]}`) ?? "", /an item with more than 1000 members$/);
  assert.match(problemOf(`{"tools":[],${members(1_000)}}`) ?? "", /a result with more than 1000 members$/);
});
