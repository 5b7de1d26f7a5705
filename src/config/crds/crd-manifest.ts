/**
 * The CRDs as the manifests that stand in kubernetes/: a test holds the files against this.
 */
import { stringify } from "yaml";
import { policies } from "../../policies/index.ts";
import { backendCrd } from "./backend-crd.ts";
import { gatewayPolicyCrd } from "./policy-crd.ts";
import type { Schema } from "./structural-schema.ts";

const HEADER = "# Generated from the schemas in src by `npm run generate`: do not edit.\n";

/** File name → text. */
export function crdManifests(): Readonly<Record<string, string>> {
  return {
    "gatewaypolicy-crd.yaml": manifestOf(gatewayPolicyCrd(policies)),
    "backend-crd.yaml": manifestOf(backendCrd()),
  };
}

function manifestOf(crd: Schema): string {
  return HEADER + stringify(crd, { lineWidth: 120, aliasDuplicateObjects: false });
}
