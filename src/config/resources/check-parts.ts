/**
 * The parts of a policy's spec, held against their schemas. A field that nobody knows may have been meant to protect:
 * such a mistake counts as one of security.
 */

import { nearestName, suggestion } from "../../cel/values/nearest-name.ts";
import type { PolicyDefinition } from "../../core/policy.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { validate } from "../schema/problems.ts";
import { type Path, pathText } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";
import { confinedValues } from "./confined-values.ts";
import { POLICY_API_GROUP, type ResourceDocument } from "./documents.ts";
import { findParts, type Part } from "./parts.ts";
import { identityOf } from "./problem-list.ts";

/** One valid part, as the policies that it stands for. */
export interface ValidPart {
  readonly path: Path;
  readonly isSecurity: boolean;
  readonly policies: readonly {
    readonly definition: PolicyDefinition;
    readonly written: unknown;
    readonly config: unknown;
  }[];
}

export type Fault = (path: Path, message: string, isSecurity: boolean) => void;

export function checkParts(
  spec: Readonly<Record<string, unknown>>,
  parts: readonly Part[],
  document: ResourceDocument,
  fault: Fault,
  cluster: Cluster | undefined,
): ValidPart[] {
  const { found, unknown } = findParts(spec, parts);
  for (const { path, value, known } of unknown) {
    const field = String(path.at(-1));
    fault(path, `unknown field${suggestion(field, known)}`, mayProtect(field, value, known));
  }
  if (found.length === 0 && unknown.length === 0)
    fault(["spec"], "one of `traffic`, `backend` is required, with at least one policy", false);

  const valid: ValidPart[] = [];
  const referrer = { group: POLICY_API_GROUP, kind: "GatewayPolicy", namespace: identityOf(document).namespace };
  for (const { part, path, value: written } of found) {
    const confined = cluster && confinedValues(part.schema, written, path, { cluster, document, referrer });
    for (const { path: at, message } of confined?.faults ?? []) fault(at, message, part.isSecurity);
    if (confined && confined.faults.length > 0) continue;
    const value = confined ? confined.value : written;
    const checked = validate(part.schema, document, value, path);
    if (!checked.ok) {
      for (const problem of checked.problems) fault(pathBelow(path, problem.path), problem.message, part.isSecurity);
      continue;
    }
    const policies: ValidPart["policies"][number][] = [];
    for (const { definition, written: own } of part.toPolicies(value)) {
      const parsed = definition.schema.safeParse(own);
      if (parsed.success) policies.push({ definition, written: own, config: parsed.data });
      else for (const issue of parsed.error.issues) fault(path, issue.message, part.isSecurity);
    }
    if (policies.length > 0) valid.push({ path, isSecurity: part.isSecurity, policies });
  }
  return valid;
}

/** The validator names the whole path as a text; below the part it is kept as one last step. */
function pathBelow(path: Path, text: string): Path {
  const prefix = pathText(path);
  const rest = text.startsWith(prefix) ? text.slice(prefix.length).replace(/^\./, "") : "";
  return rest === ""
    ? path
    : [
        ...path,
        ...rest
          .split(/[.[\]]+/)
          .filter((step) => step !== "")
          .map((step) => (/^\d+$/.test(step) ? Number(step) : step)),
      ];
}

/** A misspelt field that was to protect its targets: judged by its name, its nearest neighbour, and what it holds. */
function mayProtect(field: string, value: unknown, known: readonly string[]): boolean {
  if (/auth/i.test(field) || /auth/i.test(nearestName(field, known) ?? "")) return true;
  return isObject(value) && Object.entries(value).some(([name, inner]) => mayProtect(name, inner, []));
}
