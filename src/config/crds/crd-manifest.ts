/**
 * The CRD as the manifest that stands in kubernetes/: a test holds the file against this.
 */
import { stringify } from "yaml";
import { policies } from "../../policies/index.ts";
import { gatewayPolicyCrd } from "./policy-crd.ts";

const HEADER = "# Generated from the schemas in src by `npm run generate`: do not edit.\n";

export function crdManifest(): string {
  return HEADER + stringify(gatewayPolicyCrd(policies), { lineWidth: 120, aliasDuplicateObjects: false });
}
