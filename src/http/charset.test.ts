import assert from "node:assert/strict";
import { test } from "node:test";
import { foreignCharset } from "./charset.ts";
import { HeaderList } from "./headers.ts";

const cases: readonly (readonly [type: string, charset: string | undefined])[] = [
  ["application/json", undefined],
  ["application/json; charset=utf-8", undefined],
  ['Application/JSON ; Charset = "UTF-8"', undefined],
  ["application/json; charset=utf-7", "utf-7"],
  ["application/json; charset=utf-8; charset=utf-16", "utf-16"],
  ['application/json; charset="utf-7"', "utf-7"],
  ['application/json; charset="\\utf-7"', "\\utf-7"],
  ["application/json; charset*=utf-7''x", "utf-7''x"],
];
for (const [type, charset] of cases) {
  test(`${type}: ${charset ?? "as the gateway reads it"}`, () => {
    assert.equal(foreignCharset(new HeaderList(["content-type", type])), charset);
  });
}

test("a second header counts too", () => {
  const headers = new HeaderList([
    "content-type",
    "application/json",
    "content-type",
    "application/json;charset=utf-7",
  ]);
  assert.equal(foreignCharset(headers), "utf-7");
});
