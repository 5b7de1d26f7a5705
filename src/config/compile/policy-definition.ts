/**
 * The definition behind a policy's kind. A kind that does not exist was refused when the configuration was read.
 */
import type { PolicyDefinition } from "../../core/policy.ts";
import { policies } from "../../policies/index.ts";

export function definitionOf(kind: string): PolicyDefinition {
  const found = policies.find((policy) => policy.kind === kind);
  if (!found) throw new Error(`no policy of the kind ${kind}`);
  return found;
}
