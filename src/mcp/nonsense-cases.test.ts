import assert from "node:assert/strict";
import { test } from "node:test";
import { ANY_METHOD, LISTS_OF_TOOLS, OVER_HTTP } from "../../test/support/mcp/nonsense-cases.ts";
import { asker, FAILED_TARGETS, withServers } from "../../test/support/mcp/scripted-gateway.ts";
import type { Script, Transport } from "../../test/support/mcp/scripted-server.ts";

const GOOD: Script = { name: "good", steps: {} };

interface Setup {
  readonly transport: Transport;
  readonly server: "legacy" | "modern";
  readonly client: "legacy" | "modern";
  readonly isFiltered: boolean;
  /** Otherwise a good server is beside it. */
  readonly isAlone: boolean;
}
const SETUPS: readonly Setup[] = [
  { transport: "stdio", server: "legacy", client: "legacy", isFiltered: false, isAlone: true },
  { transport: "stdio", server: "legacy", client: "modern", isFiltered: true, isAlone: false },
  { transport: "stdio", server: "modern", client: "legacy", isFiltered: true, isAlone: true },
  { transport: "stdio", server: "modern", client: "modern", isFiltered: false, isAlone: false },
  { transport: "http", server: "legacy", client: "legacy", isFiltered: true, isAlone: false },
  { transport: "http", server: "legacy", client: "modern", isFiltered: false, isAlone: true },
  { transport: "http", server: "modern", client: "legacy", isFiltered: false, isAlone: true },
  { transport: "http", server: "modern", client: "modern", isFiltered: true, isAlone: false },
  { transport: "sse", server: "legacy", client: "legacy", isFiltered: false, isAlone: true },
  { transport: "sse", server: "legacy", client: "modern", isFiltered: true, isAlone: false },
];

for (const setup of SETUPS) {
  const { transport, server, client: era, isFiltered, isAlone } = setup;
  const general = [...ANY_METHOD, ...(transport === "http" ? OVER_HTTP : [])];
  const lists = [...LISTS_OF_TOOLS, ...general];
  const steps = { "tools/list": lists.map((one) => one.steps), "tools/call": general.map((one) => one.steps) };
  const script: Script = { name: "bad", era: server, steps };
  const where = `a ${server} server over ${transport}, ${isAlone ? "alone" : "beside another"}, ${era} client`;
  test(`nonsense of ${where}: each call fails with its reason or succeeds`, async (t) => {
    const others: readonly (readonly [Transport, Script])[] = isAlone ? [] : [["stdio", GOOD]];
    await withServers([[transport, script], ...others], { requestTimeout: "30s" }, async (client, url, served) => {
      if (isFiltered) served.access = { allows: () => true };
      const ask = await asker(era, client, url);
      const echo = isAlone ? "echo" : "bad_echo";
      for (const { name, reason } of lists) {
        await t.test(`${name} in tools/list`, async () => {
          const { result, error } = await ask("tools/list", {});
          const names = result?.tools.map((tool: { name: string }) => tool.name) ?? [];
          const failed = result?._meta?.[FAILED_TARGETS]?.bad ?? error?.message;
          if (reason === undefined) assert.ok(names.includes(echo), failed);
          else {
            assert.match(failed, reason);
            assert.match(failed, /target "bad"/);
          }
          if (!isAlone) assert.ok(names.includes("good_echo"));
        });
      }
      for (const { name, reason } of general) {
        await t.test(`${name} in tools/call`, async () => {
          const { result, error } = await ask("tools/call", { name: echo, arguments: {} });
          if (reason === undefined) assert.equal(result?.content[0].text, "echo of bad", error?.message);
          else {
            assert.match(error.message, reason);
            assert.match(error.message, /target "bad"/);
          }
        });
      }
      // The script is over: the same connection serves.
      assert.equal((await ask("tools/call", { name: echo, arguments: {} })).result.content[0].text, "echo of bad");
    });
  });
}
