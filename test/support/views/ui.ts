/**
 * Reads the numbers that pages of the web UI show. The functions of the pages run here, without a browser.
 */
import type { TestContext } from "node:test";
import type { NodeTraffic } from "../../../ui/src/data/nodes.ts";
import type { Traffic } from "../../../ui/src/data/traffic.ts";
import type { SpendBy, SpendTotal } from "../../../ui/src/pages/keys/spend-rows.ts";

export interface UiViews {
  /** The cards of the overview. */
  total(): Promise<Traffic["total"]>;
  /** A route in the overview. */
  route(name: string): Promise<NodeTraffic>;
  /** The rows of the page with keys and spend. */
  spend(by: SpendBy): Promise<readonly SpendTotal[]>;
}

/** The page has the range of an hour. Only one gateway can be viewed in a process. */
export async function openUi(t: TestContext, adminUrl: string): Promise<UiViews> {
  const page = new URL(`${adminUrl}/ui/?range=1h`);
  t.mock.method(globalThis, "fetch", fetchFrom(adminUrl, globalThis.fetch));
  Object.assign(globalThis, { location: page });
  t.after(() => Reflect.deleteProperty(globalThis, "location"));
  const { trafficOf } = await import("../../../ui/src/data/traffic.ts");
  const { keyOf, nodes, trafficOfNode } = await import("../../../ui/src/data/nodes.ts");
  const { readUsage } = await import("../../../ui/src/data/usage.ts");
  const { totalsBy } = await import("../../../ui/src/pages/keys/spend-rows.ts");
  return {
    async total() {
      const poll = trafficOf();
      await poll.refresh();
      const { value } = poll.value;
      if (value === undefined) throw new Error(poll.error.value);
      return value.total;
    },
    async route(name) {
      await nodes.refresh();
      return trafficOfNode(keyOf.route(name));
    },
    spend: async (by) => totalsBy((await readUsage(["hour", by], { since: "24h" })).rows, by),
  };
}

function fetchFrom(adminUrl: string, original: typeof fetch): typeof fetch {
  return (input, init) =>
    original(typeof input === "string" && input.startsWith("/") ? `${adminUrl}${input}` : input, init);
}
