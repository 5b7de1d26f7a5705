import assert from "node:assert/strict";
import { test } from "node:test";
import { connectionsThatFit, openFilesLimit } from "./file-descriptors.ts";

const limits = (value: string) => () =>
  `Limit                     Soft Limit           Hard Limit           Units\nMax processes             7                    7                    processes\nMax open files            ${value}                 4096                 files\n`;

const tables: [name: string, read: () => string, limit: number | undefined][] = [
  ["the soft limit is read", limits("1024"), 1024],
  ["no limit is no limit", limits("unlimited"), undefined],
  ["a text without the line is no limit", () => "Max processes 7 7 processes\n", undefined],
  [
    "a system without the file is no limit",
    () => {
      throw new Error("ENOENT");
    },
    undefined,
  ],
];
for (const [name, read, limit] of tables) test(name, () => assert.equal(openFilesLimit(read), limit));

const fits: [openFiles: number | undefined, connections: number][] = [
  [undefined, 10_000],
  [1_048_576, 10_000],
  [20_000, 10_000],
  [19_999, 9_903],
  [1_024, 416],
  [256, 80],
  [10, 1],
];
for (const [openFiles, connections] of fits) {
  test(`${openFiles ?? "any number of"} open files leave room for ${connections} of 10,000 connections`, () => {
    assert.equal(connectionsThatFit(openFiles, 10_000), connections);
  });
}
