import assert from "node:assert/strict";
import { test } from "node:test";
import { compileExpression } from "../expression.ts";
import { unknownFields } from "./unknown-fields.ts";

const cases: [source: string, said: string[]][] = [
  ["request.headerz['x'] == 'y'", ['request has no field "headerz", did you mean "headers"?']],
  ["source.adress == '::1'", ['source has no field "adress", did you mean "address"?']],
  ["has(mcp.tool.nam)", ['mcp.tool has no field "nam", did you mean "name"?']],
  ["env.podName == 'a'", ['env has no field "podName"']],
  [
    "basicAuth.user == request.metod",
    ['basicAuth has no field "user"', 'request has no field "metod", did you mean "method"?'],
  ],
  ["jwt.whatever.roles.exists(r, r == 'a')", []],
  ["apiKey.team == 'a'", []],
  ["request.headers['x.y.z'] == 'a' && request.headers.whatever == ''", []],
  ["has(mcp.tool) && mcp.tool.name == 'x'", []],
  ["request[jwt.sub] == 'a'", []],
  ["json(request.body).a.b == 1", []],
  ["llm.requestModel == 'm' && response.code == 200", []],
];
for (const [source, said] of cases) {
  test(`of ${source}: ${said.length === 0 ? "nothing" : said.join("; ")}`, () => {
    assert.deepEqual(unknownFields(compileExpression(source).paths), said);
  });
}
