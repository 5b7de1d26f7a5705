import assert from "node:assert/strict";
import { test } from "node:test";
import { createServerNames } from "./tls-listener.ts";

const names = createServerNames([
  ["a.example.com", 1],
  ["*.example.com", 2],
  ["*.deep.example.com", 3],
  ["a.example.com", 4],
]);

const rows: [asked: string, found: number | undefined][] = [
  ["a.example.com", 1],
  ["A.Example.COM", 1],
  ["b.example.com", 2],
  ["x.b.example.com", 2],
  ["x.deep.example.com", 3],
  ["deep.example.com", 2],
  ["example.com", undefined],
  [".example.com", undefined],
  ["other.test", undefined],
  ["", undefined],
];
for (const [asked, found] of rows)
  test(`the name ${JSON.stringify(asked)} finds ${found}`, () => assert.equal(names.find(asked), found));
