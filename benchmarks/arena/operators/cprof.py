import os, cProfile, sys, asyncio
exec(open(os.path.dirname(__file__)+'/lifecycle.py').read().replace("@kopf.on.update('bench.dev', 'v1', 'loads')\nasync def update(**_):\n    add('updated')",'''@kopf.on.update('bench.dev', 'v1', 'loads')
async def update(**_):
    add('updated')
    if counts['updated']==20: P.enable()
    if counts['updated']==1020: P.disable(); P.dump_stats('/tmp/cprof.out')'''))
P=cProfile.Profile()
