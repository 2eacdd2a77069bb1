// node render_svg.mjs RESVG_PACKAGE SIZE IN_DIR OUT_DIR: every .svg of IN_DIR becomes a square .png in OUT_DIR.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [, , resvgPackage, size, inDir, outDir] = process.argv;
const { initWasm, Resvg } = await import(pathToFileURL(path.join(resvgPackage, "index.mjs")).href);
await initWasm(fs.readFileSync(path.join(resvgPackage, "index_bg.wasm")));

for (const name of fs.readdirSync(inDir).filter((name) => name.endsWith(".svg"))) {
  const drawing = new Resvg(fs.readFileSync(path.join(inDir, name), "utf8"), {
    fitTo: { mode: "width", value: Number(size) },
  });
  fs.writeFileSync(path.join(outDir, name.replace(/svg$/, "png")), drawing.render().asPng());
}
