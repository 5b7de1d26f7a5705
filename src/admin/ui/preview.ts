/**
 * What a configuration would do, without doing it: it is prepared beside the running one, as a reload would, and
 * thrown away; two of them are compared by name, as their reader would.
 */

import type { Clock } from "../../base/clock.ts";
import { createMemoryBudget } from "../../base/memory-budget.ts";
import { createTasks } from "../../base/tasks.ts";
import { createLimitRegistry } from "../../config/compile/limit-registry.ts";
import { createResourceRegistry } from "../../config/compile/resource-registry.ts";
import { configDump } from "../../config/dump.ts";
import type { SourceText } from "../../config/load/load.ts";
import { prepareConfig } from "../../config/prepare.ts";
import type { Environment } from "../../config/text/env.ts";
import { silentLogger } from "../../observe/log/logger.ts";
import { createMetrics } from "../../observe/log/metrics.ts";
import { noSigningKey } from "../../store/signing-key.ts";
import { noStore } from "../../store/store.ts";

export interface Preview {
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
  /** As `/config_dump` would show it; undefined if it was refused. */
  readonly dump: Readonly<Record<string, unknown>> | undefined;
}

export interface Change {
  readonly what: "listener" | "route" | "backend" | "policy" | "config";
  readonly name: string;
  readonly change: "added" | "removed" | "changed";
  /** The parts that differ. */
  readonly parts: readonly string[];
}

export type PreviewConfig = (sources: readonly SourceText[]) => Preview;

export function createPreview({ clock, environment }: { clock: Clock; environment: Environment }): PreviewConfig {
  return (sources) => {
    const generation = createResourceRegistry(() => undefined).begin();
    try {
      const prepared = prepareConfig(sources, {
        clock,
        environment,
        // Nothing is fetched or logged for a text that may never run.
        fetch: () => Promise.reject(new Error("preview only")),
        logger: silentLogger,
        tasks: createTasks(clock),
        metrics: createMetrics(),
        limits: createLimitRegistry(),
        memory: createMemoryBudget(clock),
        store: noStore,
        signingKey: noSigningKey,
        redaction: undefined,
        generation,
        fileRead: () => undefined,
      });
      if (!prepared.ok) return { problems: prepared.problems, warnings: [], dump: undefined };
      const dump = configDump({
        ...prepared,
        version: "",
        reload: { loadedAt: "", generation: 0, warnings: [], sources: [], needsRestart: [] },
        ports: new Map(),
      });
      return { problems: [], warnings: prepared.warnings, dump };
    } finally {
      generation.discard();
    }
  };
}

type Dump = Readonly<Record<string, unknown>>;
type Item = Readonly<Record<string, unknown>>;

export function changesBetween(before: Dump, after: Dump): Change[] {
  return [
    ...compareLists("listener", before.listeners, after.listeners, ["routes"]),
    ...compareLists("route", before.routes, after.routes, []),
    ...compareLists("backend", before.backends, after.backends, []),
    ...compareLists("policy", resources(before), resources(after), ["status"]),
    ...(text(before.config) === text(after.config)
      ? []
      : [
          {
            what: "config" as const,
            name: "config",
            change: "changed" as const,
            parts: [...differingParts(asItem(before.config), asItem(after.config), []), "needs a restart"],
          },
        ]),
  ];
}

function compareLists(what: Change["what"], before: unknown, after: unknown, ignored: readonly string[]): Change[] {
  const old = byName(before);
  const next = byName(after);
  const changes: Change[] = [];
  for (const [name, item] of next) {
    const known = old.get(name);
    if (!known) changes.push({ what, name, change: "added", parts: [] });
    else {
      const parts = differingParts(known, item, ignored);
      if (parts.length > 0) changes.push({ what, name, change: "changed", parts });
    }
  }
  for (const name of old.keys()) if (!next.has(name)) changes.push({ what, name, change: "removed", parts: [] });
  return changes;
}

/** The fields that differ; of policies, their kinds. */
function differingParts(before: Item, after: Item, ignored: readonly string[]): string[] {
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  return [...keys].flatMap((key) => {
    if (ignored.includes(key) || text(before[key]) === text(after[key])) return [];
    if (key !== "policies") return [key];
    return differingParts(asItem(before[key]), asItem(after[key]), []).map((kind) => `policies.${kind}`);
  });
}

function byName(list: unknown): Map<string, Item> {
  const items = Array.isArray(list) ? (list as Item[]) : [];
  return new Map(items.map((item) => [String(item.name ?? ""), item]));
}

/** GatewayPolicy documents carry their name in `metadata`; standalone policies are shown with their targets. */
function resources(dump: Dump): Item[] {
  const list = Array.isArray(dump.policies) ? (dump.policies as Item[]) : [];
  return list.flatMap((item) => {
    const metadata = item.metadata as { name?: unknown; namespace?: unknown } | undefined;
    return metadata ? [{ ...item, name: `${String(metadata.namespace ?? "")}/${String(metadata.name ?? "")}` }] : [];
  });
}

function asItem(value: unknown): Item {
  return typeof value === "object" && value !== null ? (value as Item) : {};
}

function text(value: unknown): string {
  return JSON.stringify(value) ?? "";
}
