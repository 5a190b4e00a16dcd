#include "report/plan_script.h"

namespace plimsoll::engine {

std::string_view page_style() {
  return R"css(
*{box-sizing:border-box}body{margin:0 auto;max-width:1040px;padding:24px 20px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:36px 0 6px}p{margin:4px 0}.soft{color:var(--soft)}
.answer{font-size:18px;margin:10px 0 2px}.fits::before{content:"\2713\00a0";color:var(--inputs);font-weight:700}
.fails::before{content:"\2717\00a0";color:var(--limit);font-weight:700}
svg{width:100%;height:auto;display:block;overflow:visible}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:13px}.legend svg{width:11px;height:11px;display:inline-block;margin-right:6px}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
table.narrow{width:auto}table.narrow td,table.narrow th{padding-right:28px}
.n{text-align:right;white-space:nowrap}tr.total td{font-weight:600;border-top:2px solid var(--soft)}tr.own td{font-weight:600}
tr.over td{color:var(--soft)}td.in{padding-left:18px;color:var(--soft)}
code,pre{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}code{white-space:nowrap}
pre{background:color-mix(in srgb,var(--soft) 12%,var(--paper));padding:10px 12px;border-radius:6px;white-space:pre-wrap;margin:6px 0}
#tip{position:fixed;pointer-events:none;background:var(--paper);color:var(--ink);border:1px solid var(--soft);border-radius:6px;
padding:8px 10px;font-size:13px;box-shadow:0 2px 12px rgba(0,0,0,.2);max-width:340px;display:none;z-index:2;line-height:1.4}
#tip b{display:block}.mark{stroke:var(--ink);fill:none;stroke-width:1}.pick{fill:var(--ink);fill-opacity:.25;stroke:var(--ink)}
.bar{display:inline-block;height:9px;border-radius:2px;background:var(--activations);vertical-align:middle}
details summary{cursor:pointer;color:var(--soft);margin:6px 0}
@media print{body{max-width:none;padding:0}#tip{display:none!important}h2{break-after:avoid}svg,tr{break-inside:avoid}details>*{display:block}}
)css";
}

// The tables show the numbers of the plan's JSON, which is in the page. Names come from model files, so they are set as
// text and never as HTML.
std::string_view page_script() {
  return R"js(
const plan=JSON.parse(document.getElementById('plan-json').textContent);
const pic=JSON.parse(document.getElementById('picture-json').textContent);
const $=id=>document.getElementById(id);
function bytes(n){const u=['B','KiB','MiB','GiB','TiB'];let v=n,i=0;while(Math.abs(v)>=1024&&i<4){v/=1024;i++}
 return i==0?n+' B':v.toFixed(Math.abs(v)<10?2:Math.abs(v)<100?1:0)+' '+u[i]}
function time(s){return s<.01?(s*1e3).toFixed(2)+' ms':s<10?(s*1e3).toFixed(0)+' ms':s.toFixed(0)+' s'}
function el(tag,text,css){const e=document.createElement(tag);if(text!==undefined)e.textContent=text;if(css)e.className=css;return e}
function table(id,head,rows){const t=$(id);if(!t)return;const h=el('tr');
 head.forEach(([name,css])=>h.append(el('th',name,css)));t.append(h);
 rows.forEach(({cells,css})=>{const r=el('tr',undefined,css);
  cells.forEach((c,i)=>{const d=el('td',undefined,head[i][1]);if(c instanceof Node)d.append(c);else d.textContent=c;
   if(i==0&&typeof c=='string'&&c.startsWith('  '))d.className='in';r.append(d)});t.append(r)})}
function pieces(batch,micro){if(!micro||micro>=batch)return 'one piece';const rest=batch%micro;
 return Math.floor(batch/micro)+' pieces of '+micro+(rest?' and one of '+rest:'')}
function effect(e){return e=='bitwise'?'results identical':e=='rounding'?'equal up to rounding':'changes training'}
function bar(part){const b=el('span',undefined,'bar');b.style.width=Math.max(1,Math.round(120*part))+'px';return b}

// At the peak: categories, and the largest layers of each.
{const rows=[];const by={};(plan.peak?plan.peak.layers:[]).forEach(v=>(by[v.category]=by[v.category]||[]).push(v));
 plan.categories.filter(c=>c.bytes>0).sort((a,b)=>b.bytes-a.bytes).forEach(c=>{
  rows.push({cells:[c.name,c.bytes.toLocaleString('en'),bytes(c.bytes),bar(c.bytes/plan.peak_bytes)]});
  const list=by[c.name]||[];if(list.length<2||c.bytes*20<plan.arena_bytes||c.name=='inputs')return;
  list.slice(0,8).forEach(v=>rows.push({cells:['  '+v.layer,v.bytes.toLocaleString('en'),bytes(v.bytes),bar(v.bytes/plan.peak_bytes)]}));
  const rest=c.bytes-list.slice(0,8).reduce((s,v)=>s+v.bytes,0);
  if(list.length>8)rows.push({cells:['  '+(list.length-8)+' other layers',rest.toLocaleString('en'),bytes(rest),bar(rest/plan.peak_bytes)]})});
 const sum=(n,b,css)=>rows.push({cells:[n,b.toLocaleString('en'),bytes(b),bar(b/plan.peak_bytes)],css});
 sum('all tensors, in one block (the arena)',plan.arena_bytes,'total');sum('program and libraries, at most',plan.overhead_bytes);
 sum('reading the next batch',plan.data_bytes);sum('the whole process',plan.peak_bytes,'total');
 table('peak-table',[['',''],['bytes','n'],['','n'],['','']],rows)}

if(plan.batches)table('batches-table',[['batch','n'],['memory','n'],['per step','n'],['per sample','n'],['runs in','']],
 plan.batches.map(b=>({cells:[String(b.batch),bytes(b.peak_bytes),b.fits?time(b.step_seconds):'',b.fits?time(b.sample_seconds):'',
  b.fits?pieces(b.batch,b.micro):'does not fit'],
  css:b.batch==plan.batch.effective?'own':b.fits?'':'over'})));
if(plan.remedies)table('remedies-table',[['what',''],['memory','n'],['saves','n'],['time per sample','n'],['results',''],['add to the command','']],
 plan.remedies.map(r=>({cells:[r.remedy+(r.note?' ('+r.note+')':''),bytes(r.peak_bytes)+(r.fits?'':' (does not fit)'),bytes(r.saves_bytes),
  r.step_ratio.toFixed(2)+'x',effect(r.effect),r.flags?el('code',r.flags):''],css:r.fits?'':'over'})));
if(plan.precisions&&plan.precisions.length>1)table('precisions-table',[['precision',''],['memory','n'],['per step','n'],['','']],
 plan.precisions.map(p=>({cells:[p.precision,bytes(p.peak_bytes),time(p.step_seconds),p.fits?'':'does not fit'],css:p.precision==plan.precision?'own':''})));
{const largest=Math.max(1,...plan.layers.map(l=>l.activation_bytes));
 const row=l=>({cells:[l.name,l.class,l.output_shape.join(' x '),l.parameters.toLocaleString('en'),bytes(l.weight_bytes),bytes(l.activation_bytes),bar(l.activation_bytes/largest)]});
 const head=[['layer',''],['class',''],['output',''],['parameters','n'],['weights','n'],['activations','n'],['','']];
 const sorted=[...plan.layers].sort((a,b)=>b.activation_bytes-a.activation_bytes);
 table('layers-table',head,sorted.slice(0,12).map(row));
 if(sorted.length>12)table('more-layers-table',head,sorted.slice(12).map(row));else if($('more-layers'))$('more-layers').remove()}

// Hover.
const tip=$('tip');
function show(event,lines){tip.replaceChildren();lines.forEach((l,i)=>tip.append(i==0?el('b',l):el('div',l)));
 tip.style.display='block';const w=tip.offsetWidth,h=tip.offsetHeight;
 tip.style.left=Math.max(4,Math.min(event.clientX+14,innerWidth-w-8))+'px';
 tip.style.top=(event.clientY+h+24>innerHeight?event.clientY-h-12:event.clientY+16)+'px'}
function hide(){tip.style.display='none';document.querySelectorAll('.mark,.pick').forEach(e=>e.remove())}
function svg(tag,attributes){const e=document.createElementNS('http://www.w3.org/2000/svg',tag);
 for(const k in attributes)e.setAttribute(k,attributes[k]);return e}
const n=pic.steps.length;
function place(chart,event,f){const box=chart.getBoundingClientRect(),view=chart.viewBox.baseVal;
 const x=(event.clientX-box.left)*view.width/box.width,y=(event.clientY-box.top)*view.height/box.height;
 return {step:Math.floor((x-f.left)/f.width*n),offset:(f.top+f.height-y)/f.height*pic.most,inside:x>=f.left&&x<f.left+f.width&&y>=f.top&&y<=f.top+f.height}}
const xOf=(f,i)=>f.left+f.width*i/n,yOf=(f,b)=>f.top+f.height-f.height*b/pic.most;
function operation(i){const s=pic.steps[i];return pic.ops[s[1]]+(s[2]>=0?' of '+pic.layers[s[2]]:'')}
function alive(i){return pic.values.filter(v=>v[0]<=i&&i<=v[1])}
function timeline(event){const chart=$('timeline'),f=pic.timeline,at=place(chart,event,f);hide();
 if(!at.inside||at.step<0||at.step>=n)return;const list=alive(at.step),by={};
 list.forEach(v=>by[v[5]]=(by[v[5]]||0)+v[3]);const total=list.reduce((s,v)=>s+v[3],0);
 chart.append(svg('path',{d:`M${xOf(f,at.step+.5)} ${f.top}V${f.top+f.height}`,class:'mark'}));
 const lines=[operation(at.step),`${bytes(total)} in use, ${pic.phases[pic.steps[at.step][0]]}, ${time(pic.steps[at.step][3]/1e6)}`];
 Object.entries(by).sort((a,b)=>b[1]-a[1]).forEach(([c,b])=>lines.push(`${pic.categories[c]}: ${bytes(b)}`));
 list.sort((a,b)=>b[3]-a[3]).slice(0,3).forEach((v,i)=>lines.push((i?'':'largest: ')+`${v[4]>=0?pic.layers[v[4]]:pic.categories[v[5]]} ${bytes(v[3])}`));
 show(event,lines)}
function arena(event){const chart=$('arena'),f=pic.arena,at=place(chart,event,f);hide();
 if(!at.inside)return;const v=pic.values.find(v=>v[0]<=at.step&&at.step<=v[1]&&v[2]<=at.offset&&at.offset<v[2]+v[3]);
 if(!v)return;chart.append(svg('rect',{x:xOf(f,v[0]),width:xOf(f,v[1]+1)-xOf(f,v[0]),y:yOf(f,v[2]+v[3]),height:Math.max(1,yOf(f,v[2])-yOf(f,v[2]+v[3])),class:'pick'}));
 show(event,[v[4]>=0?pic.layers[v[4]]:pic.categories[v[5]],`${pic.categories[v[5]]}: ${v[3].toLocaleString('en')} bytes (${bytes(v[3])})`,
  `from ${operation(v[0])}`,`to ${operation(v[1])}`,`operations ${v[0]+1} to ${v[1]+1} of ${n}, at offset ${v[2].toLocaleString('en')}`])}
function point(event){const i=event.target.dataset.point;hide();if(i===undefined)return;const p=plan.frontier[i];
 show(event,[`${bytes(p.peak_bytes)}: ${p.step_ratio.toFixed(2)}x the time`,p.levers.length?'by '+p.levers.join(', '):'without any lever'])}
[['timeline',timeline],['arena',arena],['frontier',point]].forEach(([id,f])=>{const c=$(id);if(!c)return;
 c.addEventListener('pointermove',f);c.addEventListener('pointerdown',f);c.addEventListener('pointerleave',hide)});
)js";
}

}  // namespace plimsoll::engine
