/**
 * A Backend document (our own group): MCP servers, an LLM provider or an HTTP server outside of the cluster, as an entry of
 * `backends[]` that HTTPRoutes refer to. In a cluster it reads no file, starts no process and reaches no unix socket;
 * secrets are named by `secretRef`. One that is not valid answers its share of the requests with 500.
 */
import { z } from "zod";
import { backends } from "../../backends/index.ts";
import { exactlyOneOf } from "../../core/schema.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { backendProtocol } from "../schema/http-version-schema.ts";
import { pathText } from "../text/value-path.ts";
import { fieldsOf, isObject } from "../text/value-shapes.ts";
import { confinedValues } from "./confined-values.ts";
import { type BackendOutcome, POLICY_API_GROUP, POLICY_API_VERSION, type ResourceDocument } from "./documents.ts";
import { identityOf, type ProblemList } from "./problem-list.ts";

/** What a Backend can be, of all the kinds of `backends[]`. */
const KINDS = ["mcp", "ai", "host"];

export const backendSpecSchema = exactlyOneOf(
  z.strictObject({
    ...Object.fromEntries(
      backends
        .filter(({ key }) => KINDS.includes(key))
        .map(({ key, schema, doc }) => [key, schema.optional().describe(doc)]),
    ),
    protocol: backendProtocol.optional(),
  }),
  KINDS,
);

export type ReadBackend =
  | { readonly backend: Readonly<Record<string, unknown>> }
  | { readonly path: readonly (string | number)[]; readonly message: string };

/** `reader` is the document that will be compiled with it: what a secret grants, it may read. */
export function readBackend(
  value: unknown,
  namespace: string,
  reader: ResourceDocument,
  cluster?: Cluster,
): ReadBackend {
  const { apiVersion, spec } = fieldsOf(value);
  if (apiVersion !== POLICY_API_VERSION) return { path: ["apiVersion"], message: `expected ${POLICY_API_VERSION}` };
  if (!isObject(spec)) return { path: ["spec"], message: "required field is missing" };
  const referrer = { group: POLICY_API_GROUP, kind: "Backend", namespace };
  const { value: confined, faults } = cluster
    ? confinedValues(backendSpecSchema, spec, ["spec"], { cluster, document: reader, referrer })
    : { value: spec, faults: [] };
  const [fault] = faults;
  if (fault) return fault;
  const parsed = backendSpecSchema.safeParse(confined);
  if (parsed.success) return { backend: confined as Record<string, unknown> };
  const [issue] = parsed.error.issues;
  return { path: ["spec", ...(issue?.path ?? []).map(asPart)], message: issue?.message ?? "not valid" };
}

/** What its status says, whoever refers to it. */
export function backendOutcome(document: ResourceDocument, problems: ProblemList, cluster?: Cluster): BackendOutcome {
  const read = readBackend(document.value, identityOf(document).namespace, document, cluster);
  if ("backend" in read)
    return { document, accepted: { isTrue: true, reason: "Accepted", message: "The backend is valid" } };
  problems.add(read.path, `${read.message}; requests to it get 500`);
  const message = `${pathText(read.path)}: ${read.message}`;
  return { document, accepted: { isTrue: false, reason: "Invalid", message } };
}

function asPart(part: PropertyKey): string | number {
  return typeof part === "symbol" ? String(part) : part;
}
