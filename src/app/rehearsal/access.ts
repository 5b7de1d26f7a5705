/**
 * Runs an access review of a configuration, and optionally of a new one for comparison.
 */
import type { Clock } from "../../base/clock.ts";
import { type DryConfig, dryRunnerOf, openDryConfig } from "../../config/dry-config.ts";
import type { SourceText } from "../../config/load/load.ts";
import type { Environment } from "../../config/text/env.ts";
import type { StoredKeyIdentity } from "../../core/dry-env.ts";
import { safeJsonPieces } from "../../json/safe-json.ts";
import {
  type AccessReview,
  ANONYMOUS,
  type ClaimSet,
  claimPrincipals,
  configuredPrincipals,
  type NamedTool,
  namedItems,
  type Principal,
  recordedPrincipals,
  reviewAccess,
  storedPrincipals,
  withUniqueNames,
} from "../../pipeline/dry-run/access-review.ts";
import type { RecordedTraffic } from "../../record/recorded-request.ts";
import { valuesIn, withoutVariables, type YieldThread } from "./rehearse.ts";

export interface AccessInput {
  readonly sources: readonly SourceText[];
  readonly after?: readonly SourceText[] | undefined;
  readonly environment: Environment;
  readonly storedKeys: readonly StoredKeyIdentity[];
  readonly claimSets: readonly ClaimSet[];
  readonly tools: readonly NamedTool[];
  /** Limits the review to these items, for example `tool:files/delete_file`. */
  readonly items?: readonly string[] | undefined;
}

/** Reviews are pieces of JSON, because serializing a large review in the gateway's process would delay requests. */
export type AccessFound =
  | { readonly ok: true; readonly review: readonly string[]; readonly after?: readonly string[] }
  | { readonly ok: false; readonly problems: readonly string[] };

export async function runAccessReview(
  input: AccessInput,
  traffic: RecordedTraffic,
  clock: Clock,
  yieldThread?: YieldThread,
): Promise<AccessFound> {
  const recorded = recordedPrincipals(traffic, clock.now());
  const review = await reviewSources(input.sources, input, recorded, clock, yieldThread);
  if (!("results" in review)) return { ok: false, problems: review };
  if (input.after === undefined) return { ok: true, review: safeJsonPieces({ ...review }) };
  const after = await reviewSources(input.after, input, recorded, clock, yieldThread);
  if (!("results" in after)) return { ok: false, problems: after };
  return { ok: true, review: safeJsonPieces({ ...review }), after: safeJsonPieces({ ...after }) };
}

async function reviewSources(
  sources: readonly SourceText[],
  { environment, storedKeys, claimSets, tools, items }: AccessInput,
  recorded: readonly Principal[],
  clock: Clock,
  yieldThread: YieldThread | undefined,
): Promise<AccessReview | readonly string[]> {
  const dry: DryConfig = openDryConfig(sources, { environment, clock });
  try {
    const { prepared } = dry;
    if (!prepared.ok) return prepared.problems;
    const { topology } = prepared;
    const principals = withUniqueNames([
      ...configuredPrincipals(topology),
      ...storedPrincipals(storedKeys),
      ...claimPrincipals(claimSets, clock.now()),
      ...recorded,
      ANONYMOUS,
    ]);
    const byName = namedItems(items ?? []);
    const wanted = items === undefined ? undefined : new Set(items);
    const review = await reviewAccess(
      {
        topology,
        runner: dryRunnerOf(prepared, clock),
        principals,
        named: { ...byName, tools: [...tools, ...byName.tools] },
        ...(wanted === undefined ? {} : { isWanted: (kind, name) => wanted.has(`${kind}:${name}`) }),
      },
      yieldThread,
    );
    return withoutVariables(review, valuesIn(sources, environment));
  } finally {
    dry.close();
  }
}
