/**
 * Lists a server's tools outside of a session, with their differences from the lock file and suspicious content.
 */

import { peerInput } from "../../base/peer-inputs.ts";
import { finish } from "../../base/sliced-work.ts";
import { VERSION } from "../../base/version.ts";
import type { InspectedTarget, InspectedTool } from "../../core/backend.ts";
import { readJson } from "../../json/read-json.ts";
import { listProblem } from "../protocol/access.ts";
import { ownCall, refuseQuestion } from "../protocol/call.ts";
import { asClientNotification, asClientRequest, type ServerMessage } from "../protocol/json-rpc.ts";
import { LATEST_2025 } from "../protocol/protocol-version.ts";
import type { ConnectionOptions } from "../server-side/server-connection.ts";
import type { Target } from "../server-side/target.ts";
import type { Upstream, UpstreamListener } from "../server-side/upstream.ts";
import { Upstream2025 } from "../server-side/upstream-2025.ts";
import { injectionMarkers, type QuarantinedTool } from "./quarantine.ts";
import { INSTRUCTIONS_ENTRY, instructionsDefinition, pinnedDefinition, type ToolDefinition } from "./tool-lock.ts";
import type { TargetTools, ToolSettings } from "./tool-settings.ts";

const TOOL_LIST = peerInput("mcp-server/tool-list");

/** Leaves time for `npx` to download the server. */
const INSPECTION_MS = 60_000;
const MAX_INSPECTED_PAGES = 100;

export interface Inspection {
  readonly targets: readonly Target[];
  readonly tools: TargetTools;
  link(target: Target): ConnectionOptions;
}

interface InspectionOptions {
  readonly link: ConnectionOptions;
  readonly settings: ToolSettings | undefined;
  readonly quarantined: readonly QuarantinedTool[];
}

export function inspectTargets(
  { targets, tools, link }: Inspection,
  only: ReadonlySet<string> | undefined,
): Promise<readonly InspectedTarget[]> {
  return Promise.all(
    targets
      .filter(({ name }) => only?.has(name) ?? true)
      .map((target) => {
        const own = tools.of(target);
        const quarantined = own?.quarantine.tools ?? [];
        return inspectTarget(target, { link: link(target), settings: own?.settings, quarantined });
      }),
  );
}

async function inspectTarget(target: Target, env: InspectionOptions): Promise<InspectedTarget> {
  try {
    const { tools, instructions } = await loadOffer(target, env);
    const entries = tools.map((one) => inspected(String(one.name), one, env.settings));
    if (instructions !== undefined)
      entries.push(inspected(INSTRUCTIONS_ENTRY, instructionsDefinition(instructions), env.settings));
    return { target: target.name, tools: entries };
  } catch (error) {
    const seen = withheldTools(env.quarantined, env.settings);
    return { target: target.name, tools: seen, error: error instanceof Error ? error.message : String(error) };
  }
}

/** Returns the quarantined tools whose definitions are stored. No request is sent to a server. */
export function withheldTargets({ targets, tools }: Inspection): readonly InspectedTarget[] {
  return targets.map((target) => {
    const own = tools.of(target);
    return { target: target.name, tools: withheldTools(own?.quarantine.tools ?? [], own?.settings) };
  });
}

function withheldTools(quarantined: readonly QuarantinedTool[], settings: ToolSettings | undefined): InspectedTool[] {
  return quarantined.flatMap(({ name, definition }) => (definition ? [inspected(name, definition, settings)] : []));
}

function inspected(name: string, definition: ToolDefinition, settings: ToolSettings | undefined): InspectedTool {
  const lock = settings?.lock;
  const difference = lock === undefined ? ["there is no lock file"] : lock.difference(name, definition);
  const isNew = difference?.every((line) => !/^[-+] /.test(line));
  const isOffered = name !== INSTRUCTIONS_ENTRY && (lock === undefined || difference === undefined);
  const shown = settings === undefined ? name : settings.shownName(name);
  return {
    name,
    shown: isOffered ? (shown ?? null) : null,
    state: difference === undefined ? "accepted" : isNew ? "new" : "changed",
    definition: pinnedDefinition(definition),
    difference: difference ?? [],
    suspicious: injectionMarkers(definition),
  };
}

interface Offer {
  readonly tools: readonly ToolDefinition[];
  readonly instructions: string | undefined;
}

async function loadOffer(target: Target, { link }: InspectionOptions): Promise<Offer> {
  const params = {
    protocolVersion: LATEST_2025,
    capabilities: {},
    clientInfo: { name: "mcp-gateway-inspection", version: VERSION },
  };
  const upstream = new Upstream2025(
    target,
    link,
    asClientRequest("initialize", JSON.stringify(params)),
    IGNORING_LISTENER,
    undefined,
  );
  let giveUp: (error: Error) => void = () => undefined;
  const timer = link.clock.after(INSPECTION_MS, () => giveUp(new Error(`target "${target.name}" takes too long`)));
  try {
    return await Promise.race([
      new Promise<never>((_resolve, reject) => {
        giveUp = reject;
      }),
      openAndList(target, upstream),
    ]);
  } finally {
    timer.cancel();
    await upstream.close();
  }
}

async function openAndList(target: Target, upstream: Upstream2025): Promise<Offer> {
  await new Promise<void>((resolve, reject) => {
    upstream.open((outcome) => {
      if (outcome.ok) resolve();
      else reject(new Error(`target "${target.name}" ${outcome.answer ? "refused to initialize" : outcome.reason}`));
    });
  });
  upstream.notify(asClientNotification("notifications/initialized"));
  const instructions = upstream.about?.instructions;
  const tools: ToolDefinition[] = [];
  if (upstream.about?.capabilities.tools === undefined) return { tools, instructions };
  let cursor: unknown;
  for (let page = 0; page < MAX_INSPECTED_PAGES; page++) {
    const request = asClientRequest("tools/list", JSON.stringify(cursor === undefined ? {} : { cursor }));
    const answer = await new Promise<ServerMessage>((resolve, reject) => {
      upstream.call(ownCall(request, { answered: resolve, failed: ({ message }) => reject(new Error(message)) }));
    });
    const problem = finish(listProblem(request, answer, target.name));
    if (problem || answer.kind !== "result")
      throw new Error(problem?.message ?? `target "${target.name}" does not list its tools`);
    const { result } = readJson(TOOL_LIST, answer.text) as {
      result: { tools: ToolDefinition[]; nextCursor?: unknown };
    };
    tools.push(...result.tools);
    cursor = result.nextCursor;
    if (typeof cursor !== "string") break;
  }
  return { tools, instructions };
}

const IGNORING_LISTENER: UpstreamListener = {
  notified: () => undefined,
  asked: (_upstream: Upstream, question) => refuseQuestion(question),
  canDeliverQuestions: () => true,
  lost: () => undefined,
};
