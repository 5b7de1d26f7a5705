/**
 * `npm run test:kubernetes`: the Gateway API's conformance suite. A run of all tests replaces the report in docs/; its
 * features are those that the GatewayClass declares.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { GATEWAY_API, openApi, packageVersion, root, startController, until } from "./cluster.mjs";

const PROFILES = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS";

const CLASS = `${GATEWAY_API}/gatewayclasses/gateway`;

export async function conformance(cluster, flags) {
  const api = await openApi(cluster);
  // The suite takes the features from the status when it begins: not those of an earlier controller.
  await api.patch(`${CLASS}/status`, { status: { supportedFeatures: [] } });
  startController(cluster);
  await until("the features of the class", async () => (await api.get(CLASS)).status.supportedFeatures?.length > 0);
  const report = join(cluster.folder, "report.yaml");
  const { status } = spawnSync(
    process.env.GATEWAY_CONFORMANCE,
    [
      "-test.v",
      "-test.timeout=50m",
      "-test.run=TestConformance",
      "-gateway-class=gateway",
      `-conformance-profiles=${PROFILES}`,
      "-organization=gateway",
      "-project=mcp-llm-gateway",
      "-url=https://example.invalid",
      `-version=${packageVersion()}`,
      "-contact=@gateway",
      `-report-output=${report}`,
      ...flags,
    ],
    { stdio: "inherit" },
  );
  if (existsSync(report) && flags.length === 0)
    writeFileSync(join(root, "docs/kubernetes-conformance.yaml"), readFileSync(report));
  return status ?? 1;
}
