/**
 * `npm run test:kubernetes`: the conformance suites of the Gateway API and of its Inference Extension. A run of all tests
 * replaces the report in docs/. The Gateway API's features are those that the GatewayClass declares, and each version of
 * Kubernetes has its own report.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { GATEWAY_API, openApi, packageVersion, root, startController, until } from "./cluster.mjs";

const PROFILES = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS";

const INFERENCE_REPORT = "kubernetes-inference-conformance.yaml";
const CLASS = `${GATEWAY_API}/gatewayclasses/gateway`;

export function conformance(cluster, flags) {
  const { GATEWAY_CONFORMANCE, GATEWAY_USABLE_ADDRESS, GATEWAY_UNUSABLE_ADDRESS } = process.env;
  const addresses =
    GATEWAY_USABLE_ADDRESS && GATEWAY_UNUSABLE_ADDRESS
      ? [`-usable-address=${GATEWAY_USABLE_ADDRESS}`, `-unusable-address=${GATEWAY_UNUSABLE_ADDRESS}`]
      : ["-skip-tests=GatewayStaticAddresses"];
  const options = [`-conformance-profiles=${PROFILES}`, ...addresses];
  const reportFile = ({ major, minor }) => `kubernetes-conformance-${major}.${minor}.yaml`;
  return runSuite(cluster, GATEWAY_CONFORMANCE, options, flags, reportFile);
}

/** The suite selects its only profile by itself. */
export function inference(cluster, flags) {
  const options = ["-conformance-profiles=Gateway"];
  return runSuite(cluster, process.env.GATEWAY_INFERENCE_CONFORMANCE, options, flags, () => INFERENCE_REPORT);
}

async function runSuite(cluster, suite, options, flags, reportFile) {
  const api = await openApi(cluster);
  // The suite takes the features from the status when it begins: not those of an earlier controller.
  await api.patch(`${CLASS}/status`, { status: { supportedFeatures: [] } });
  startController(cluster);
  await until("the features of the class", async () => (await api.get(CLASS)).status.supportedFeatures?.length > 0);
  const report = join(cluster.folder, "report.yaml");
  const { status } = spawnSync(
    suite,
    [
      "-test.v",
      "-test.timeout=50m",
      "-test.run=TestConformance",
      "-gateway-class=gateway",
      ...options,
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
  if (existsSync(report) && flags.length === 0) {
    const file = reportFile(await api.get("/version"));
    writeFileSync(join(root, "docs", file), readFileSync(report));
  }
  return status ?? 1;
}
